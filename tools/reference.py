"""Write docs/reference.md from the template tools/reference.md: `make reference`.

The template is Markdown with the prose that no docstring has. A line `<!-- what: names -->` in it is replaced by what
the package says about these names in signatures, docstrings and comments of fields:

    class: Pipeline as site without JobType    the class, its attributes, and its methods that JobType does not have
    signatures: SyncContext as ctx     the methods without texts, where another class has them
    function: exponential, delays      functions, and classes whose constructor is all that is called
    options: Windlass.job              a table of the section `Options:` in a docstring
    fields: State, Job as record       a heading and a table of fields for each class
    errors, events, other              every error; every event; public names that the template does not name
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from pkgutil import resolve_name
from types import FunctionType, MethodType
from typing import Any, get_args

import windlass
from windlass.declare.registry import JobOptions
from windlass.errors import WindlassError
from windlass.observe.events import Event

ROOT = Path(__file__).parents[1]
TEMPLATE = ROOT / "tools" / "reference.md"
TARGET = ROOT / "docs" / "reference.md"
DIRECTIVE = re.compile(r"^<!-- (\w+)(?:: (.+?))? -->$", re.MULTILINE)
OPTIONS = re.compile(r"^Options:\n((?: +.*\n?|\n)+)", re.MULTILINE)
NAMED = re.compile(r"(\S+) as (\w+)(?: without (\S+))?")
MOST_KEYS = 10  # of a TypedDict that a signature spells out
INTERNAL = {
    "Job": {"token", "lease"},  # the right to finish an attempt, which only its worker has
    "Call": {"definition", "input", "options", "registry", "new_job"},
    "Limit": {"rule", "names"},
}
"""Members of a class, and of its subclasses, that are for the package itself: the page does not have them."""


def render() -> str:
    """The text of docs/reference.md."""
    text = DIRECTIVE.sub(_fill, TEMPLATE.read_text(encoding="utf-8"))
    return re.sub(r"\n{3,}", "\n\n", text.replace("R_co", "R")).rstrip() + "\n"


def _fill(directive: re.Match[str]) -> str:
    write = globals()[f"write_{directive[1]}"]
    parts = map(write, directive[2].split(", ")) if directive[2] else [write()]
    return "\n".join(line for part in parts for line in part)


def find(name: str) -> Any:
    return resolve_name(f"windlass.{name}")


# Texts


def text_of(thing: Any) -> str:
    """The docstring without its options; that of a class is its own."""
    written = vars(thing).get("__doc__") if isinstance(thing, type) else thing.__doc__
    return OPTIONS.sub("", inspect.cleandoc(written or "")).strip()


def item(head: str, text: str = "") -> str:
    return f"- {head}\n\n{textwrap.indent(text, '  ')}\n" if text else f"- {head}"


def table(*rows: tuple[str, ...]) -> list[str]:
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |" for cells in rows]
    return [lines[0], f"|{'---|' * len(rows[0])}", *lines[1:], ""]


def described(body: list[ast.stmt], lines: list[str]) -> Iterator[tuple[str, str, str]]:
    """Each assignment: its name, its type or value, and its description, beside it or below it."""
    for node, after in pairwise([*body, ast.Pass()]):
        match node:
            case ast.AnnAssign(target=target, annotation=kind) | ast.Assign(targets=[target], value=kind):
                beside = re.search(r"  # (.+)$", lines[(node.end_lineno or 1) - 1])
                text = beside[1] if beside else ast.literal_eval(after.value) if isinstance(after, ast.Expr) else ""
                yield ast.unparse(target), ast.unparse(kind).replace("'", '"'), " ".join(text.split())


def parse(cls: type) -> tuple[list[ast.stmt], list[str]]:
    """The statements in a class, and the lines of its source."""
    source = textwrap.dedent(inspect.getsource(cls))
    return getattr(ast.parse(source).body[0], "body", []), source.splitlines()


# Signatures


def signature(function: Any, called: str) -> str:
    """`job.result(timeout: Duration | None = None) -> R`"""
    if options_of(function):
        return f"{called}(…)"
    found = inspect.signature(function)
    given: list[str] = []
    for parameter in (each for each in found.parameters.values() if each.name != "self"):
        if parameter.kind is parameter.KEYWORD_ONLY and not any(each.startswith("*") for each in given):
            given.append("*")
        given += _spell(parameter, function)
        if parameter.kind is parameter.POSITIONAL_ONLY:
            given = [*(each for each in given if each != "/"), "/"]
    answer = "None" if isinstance(function, type) else str(found.return_annotation)
    if coroutine := re.fullmatch(r"Coroutine\[Any, Any, (.+)\]", answer):
        called, answer = f"await {called}", coroutine[1]
    return f"{called}({', '.join(given)})" + ("" if answer == "None" else f" -> {answer}")


def _spell(parameter: inspect.Parameter, function: Any) -> list[str]:
    hint = "" if parameter.annotation is parameter.empty else str(parameter.annotation)
    if unpacked := re.fullmatch(r"Unpack\[(\w+)\]", hint):
        keys = getattr(inspect.getmodule(function), unpacked[1]).__annotations__
        if len(keys) <= MOST_KEYS:
            return [f"{name}: {hint_of(kind)} = …" for name, kind in keys.items()]
    text = str(parameter).split(":")[0].split("=")[0].rstrip()  # its name, with its stars
    text += f": {hint}" if hint and not hint.startswith(("P.", "Unpack")) else ""
    return [text if parameter.default is parameter.empty else f"{text} = {parameter.default!r}".replace("'", '"')]


def hint_of(hint: Any) -> str:
    return str(getattr(hint, "__forward_arg__", hint)).replace("'", '"').replace("builtins.", "")


def options_of(function: Any) -> dict[str, str]:
    """Each option's text in the section `Options:` of a docstring."""
    section = OPTIONS.search(inspect.getdoc(function) or "")
    listed = re.findall(r"^(\w+): (.*(?:\n +.*)*)", textwrap.dedent(section[1]) if section else "", re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in listed}


def write_options(name: str) -> Iterator[str]:
    """The options that a function takes by name, or those of `@app.job`."""
    parameters, texts = inspect.signature(find(name)).parameters.values(), options_of(find(name))
    own = {each.name: each.annotation for each in parameters if each.kind is each.KEYWORD_ONLY}
    hints = (own or JobOptions.__annotations__).items()
    rows = [(f"`{key}`", f"`{hint_of(hint)}`", texts.get(key, "")) for key, hint in hints]
    yield from table(("option", "type", "what it is"), *rows)


# Classes


def is_internal(cls: type, name: str) -> bool:
    return any(name in INTERNAL.get(each.__name__, ()) for each in cls.__mro__)


def members(cls: type) -> dict[str, Any]:
    """The public methods and properties that the package wrote, in order: the class's own, then those of its bases."""
    found: dict[str, Any] = {}
    for each in cls.__mro__:
        for name in vars(each) if each.__module__.startswith("windlass") else ():
            value = getattr(each, name)
            hidden = name.startswith("_") or is_internal(cls, name)
            if not hidden and isinstance(value, FunctionType | MethodType | property):
                found.setdefault(name, value)
    return found


def entries(cls: type, noun: str) -> Iterator[tuple[str, str, str]]:
    """Name, signature and docstring of each method; an awaited form stands with its blocking one."""
    found = members(cls)
    for name, value in found.items():
        if isinstance(value, property):
            yield name, f"`{noun}.{name}: {value.fget.__annotations__['return']}`", text_of(value)
        elif name.startswith("a") and name[1:] in found:
            plain = signature(found[name[1:]], f"{noun}.{name[1:]}")
            more = "" if plain.split(" ->")[0].endswith("()") else "…"
            yield name, f"`{plain}` · `await {noun}.{name}({more})`", text_of(value)
        elif f"a{name}" not in found:
            yield name, f"`{signature(value, f'{noun}.{name}')}`", text_of(value)


def attributes(cls: type) -> Iterator[tuple[str, str]]:
    """What a class or its constructor sets, and describes beside or below."""
    for each in (each for each in cls.__mro__ if each.__module__.startswith("windlass")):
        body, lines = parse(each)
        constructors = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
        for name, _, text in described([*body, *(node for made in constructors for node in made.body)], lines):
            if text and not name.startswith(("_", "self._")):
                yield name.removeprefix("self."), text


def write_class(given: str, *, texts: bool = True) -> Iterator[str]:
    name, noun, without = NAMED.fullmatch(given).groups()  # type: ignore[union-attr]
    cls = find(name)
    yield f"{text_of(cls)}\n"
    if cls.__init__.__doc__ and cls.__init__ is not object.__init__:
        yield item(f"`{signature(cls, cls.__name__)}`", text_of(cls.__init__))
    yield from (item(f"`{noun}.{name}`", text if texts else "") for name, text in attributes(cls))
    for method, head, text in entries(cls, noun):
        if not (without and method in members(find(without))):
            yield item(head, text if texts else "")


write_signatures = partial(write_class, texts=False)


def write_function(name: str) -> Iterator[str]:
    yield item(f"`{signature(find(name), name)}`", text_of(find(name)))


# Values


def write_fields(given: str) -> Iterator[str]:
    name, _, noun = given.partition(" as ")
    cls = find(name)
    where = "" if cls.__name__ in windlass.__all__ else f" (`{cls.__module__}`)"
    yield f"\n### {cls.__name__}\n\n{text_of(cls)}{where}\n"
    mine = [each for each in cls.__mro__ if each.__module__.startswith("windlass")]
    each_field = (field for each in mine for field in described(*parse(each)) if not is_internal(cls, field[0]))
    found = [(f"`{name}`", f"`{kind}`", text) for name, kind, text in each_field]
    if 2 * len([text for _, _, text in found if text]) > len(found):
        yield from table(("name", "value" if hasattr(cls, "__members__") else "type", "what it is"), *found)
    elif found:
        shown = (f"{name} ({kind}{f': {text}' if text else ''})" for name, kind, text in found)
        yield f"{'Values' if hasattr(cls, '__members__') else 'Fields'}: {', '.join(shown)}.\n"
    yield from (item(head, text) for _, head, text in entries(cls, noun or cls.__name__.lower()))


def write_events() -> Iterator[str]:
    return (line for event in get_args(Event) for line in write_fields(f"observe.events.{event.__name__}"))


def write_errors(error: type[BaseException] = WindlassError, depth: int = 0) -> Iterator[str]:
    """The tree of errors as a list, each with its docstring and the built-in error that it is as well."""
    also = [base.__name__ for base in error.__bases__ if base.__module__ == "builtins" and base is not Exception]
    words = " ".join(text_of(error).split())
    yield f"{'  ' * depth}- **`{error.__name__}`**{f' (also a `{also[0]}`)' if also else ''}: {words}"
    for child in error.__subclasses__():
        if child.__module__ == WindlassError.__module__:
            yield from write_errors(child, depth + 1)


def write_other() -> Iterator[str]:
    """Public names that the template does not name."""
    template = TEMPLATE.read_text(encoding="utf-8")
    for name in windlass.__all__:
        thing = find(name)
        if re.search(rf"\b{name}\b", template) or thing in get_args(Event):
            continue
        if isinstance(thing, type):
            yield from () if issubclass(thing, WindlassError) else write_fields(name)
        else:
            yield from write_function(name) if inspect.isfunction(thing) else [item(f"`{name}`: `{thing}`")]


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
    print(f"wrote {TARGET.relative_to(ROOT)}")

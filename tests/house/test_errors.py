"""errors.py draws its classes as a tree in its docstring: the drawing, the classes and their use agree."""

from __future__ import annotations

import ast
import inspect
import re

from windlass import errors

from .source import PACKAGE, expect_none, modules, nodes

BRANCH = re.compile(r"^((?:│   |    )*)(?:├── |└── )(\w+)")

NOT_RAISED = {
    "JobUnsuccessful": "a base, for users who catch either end of result()",
    "FetchError": "a base, for users who catch either kind",
}
"""Classes that no code of the package makes, with the reason why they are there."""


def drawn() -> dict[str, str]:
    """Each class of the drawing with the class above it."""
    parents: dict[str, str] = {}
    above = ["WindlassError"]
    for line in (errors.__doc__ or "").splitlines():
        if branch := BRANCH.match(line):
            del above[len(branch[1]) // 4 + 1 :]
            assert branch[2] not in parents, f"{branch[2]} stands twice in the tree of errors.py"
            parents[branch[2]] = above[-1]
            above.append(branch[2])
    return parents


def defined() -> dict[str, str]:
    """Each class of errors.py with the first of its bases."""
    found = inspect.getmembers(errors, lambda item: inspect.isclass(item) and item.__module__ == errors.__name__)
    return {name: item.__bases__[0].__name__ for name, item in found if item is not errors.WindlassError}


def used() -> set[str]:
    """Names that are called, raised or kept as a value outside errors.py; a name that is only caught is not used."""
    names: set[str] = set()
    for path in modules().values():
        if path != PACKAGE / "errors.py":
            names |= {name for node in nodes(path) for name in _made(node)}
    return names


def _made(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Call):
        return _names(node.func)
    if isinstance(node, ast.Raise):
        return _names(node.exc)
    if isinstance(node, ast.Dict):
        return [name for value in node.values for name in _names(value)]
    if isinstance(node, ast.IfExp):
        return [*_names(node.body), *_names(node.orelse)]
    return []


def _names(node: ast.AST | None) -> list[str]:
    if isinstance(node, ast.Name):
        return [node.id]
    return [node.attr] if isinstance(node, ast.Attribute) else []


def test_the_drawn_tree_is_the_tree_of_the_classes() -> None:
    above = {name: base for name, base in defined().items() if drawn().get(name, base) != base}

    expect_none(set(defined()) - set(drawn()), "draw these classes into the tree of errors.py's docstring")
    expect_none(
        set(drawn()) - set(defined()), "these classes are gone: remove them from the tree of errors.py's docstring"
    )
    expect_none(
        (f"{name} belongs under {base}" for name, base in above.items()),
        "the tree of errors.py's docstring draws these under another class than their first base: move them",
    )


def test_each_error_has_a_docstring() -> None:
    silent = (name for name in defined() if not vars(getattr(errors, name)).get("__doc__"))
    expect_none(silent, "say in a docstring what happened, in one sentence")


def test_each_error_is_raised_somewhere() -> None:
    unused = {"WindlassError", *defined()} - used()

    expect_none(unused - set(NOT_RAISED), "no code makes these: remove the class, or give its reason in NOT_RAISED")
    expect_none(set(NOT_RAISED) - unused, "code makes these now, or they are gone: take them out of NOT_RAISED")

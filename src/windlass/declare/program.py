"""From what a user types to a loaded program: `app.py`, `path/app.py:name`, `package.module`, `package.module:app`.

The current directory is first on the module path, as with `python -m`. A file keeps its own name as a module
(`app.py` is `app`), so another process that loads the same reference finds the same modules.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import linecache
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.errors import ProgramError, WindlassError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from windlass.app import Windlass
    from windlass.declare.jobtype import ConfiguredJob

FRAMES_SHOWN = 3  # of a traceback: the last calls before the error
ALIAS = "windlass_program_"  # before the name of a file that cannot be a module's name


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed reference. Nothing is imported yet."""

    text: str  # as it was typed, without the attribute
    module: str
    file: Path | None = None  # absolute; None: found by the module's name
    root: Path | None = None  # the directory from which the module is imported
    attribute: str | None = None

    @property
    def reference(self) -> str:
        """The reference that works in any process with the same current directory."""
        return str(self.file) if self.file is not None else self.module


def load(target: str) -> Windlass:
    """The app that `target` names, or the only one in its module."""
    parsed = parse(target)
    module = import_program(parsed)
    name = parsed.attribute or _only_app(module, parsed)
    app = _named_app(module, name, parsed)
    app._program = f"{parsed.reference}:{name}"
    return app


def find_job(target: str) -> ConfiguredJob[..., Any]:
    """The job type or pipeline that `target` names, as `app:add`, `app.py:add` or `package.module:add`."""
    from windlass.declare.jobtype import JobType
    from windlass.declare.pipeline_type import Pipeline

    parsed = parse(target)
    module = import_program(parsed)
    jobs = {name: value for name, value in vars(module).items() if isinstance(value, (JobType, Pipeline))}
    if parsed.attribute is None:
        raise ProgramError(f"{target}: say which job to run{_example(parsed, jobs)}")
    if parsed.attribute in jobs:
        return jobs[parsed.attribute]
    found = getattr(module, parsed.attribute, None)
    if found is None:
        raise ProgramError(f"{parsed.text} has no job {parsed.attribute!r}{_near(parsed.attribute, jobs)}")
    kind = "a function" if callable(found) else f"a {type(found).__name__}"
    raise ProgramError(
        f"{parsed.text}:{parsed.attribute} is {kind} and no job; write @app.job above it{_near('', jobs)}"
    )


def parse(target: str) -> Target:
    """Parse a reference, and check that its file exists."""
    head, colon, attribute = target.rpartition(":")
    if not colon:
        head, attribute = target, ""
    elif not attribute.isidentifier() or not head:
        raise ProgramError(f"{target!r} names no app; write it like app.py, app.py:name or package.module:name")
    if head.endswith(".py") or "/" in head or os.sep in head:
        return _parse_file(head, attribute or None)
    if not head or not all(part.isidentifier() for part in head.split(".")):
        raise ProgramError(f"{target!r} is neither a file nor a module; write it like app.py or package.module")
    return Target(text=head, module=head, attribute=attribute or None)


def import_program(target: Target) -> ModuleType:
    """Import the program's module; any error in it becomes a `ProgramError` that shows the place."""
    for directory in filter(None, (Path.cwd(), target.root)):
        if sys.path[:1] != [str(directory)]:
            sys.path.insert(0, str(directory))
    try:
        if target.file is None or target.module.count("."):
            return importlib.import_module(target.module)
        return _import_file(target.file, target.module)
    except SyntaxError as error:
        raise ProgramError(_explain_syntax(error)) from error
    except ModuleNotFoundError as error:
        if target.file is None and f"{target.module}.".startswith(f"{error.name}."):
            raise ProgramError(_explain_missing_module(target, error.name or target.module)) from None
        raise ProgramError(_explain(target, error)) from error
    except WindlassError as error:
        raise ProgramError(f"{_last_place(error) or target.text}: {error}") from error
    except (Exception, SystemExit) as error:
        raise ProgramError(_explain(target, error)) from error


def check_source(target: Target) -> None:
    """Find a syntax error without running the program: for a process that starts others to run it."""
    if target.file is None:
        return
    try:
        compile(target.file.read_bytes(), str(target.file), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise ProgramError(_explain_syntax(error)) from error
    except (OSError, ValueError) as error:
        raise ProgramError(f"{target.text} cannot be read: {error}") from error


def _parse_file(text: str, attribute: str | None) -> Target:
    file = Path(text).expanduser().absolute()
    if not file.is_file():
        raise ProgramError(_explain_missing_file(text, file))
    file = Path(os.path.normpath(file))
    root, name = _module_of(file)
    return Target(text=text, module=name, file=file, root=root, attribute=attribute)


def _module_of(file: Path) -> tuple[Path, str]:
    """The directory to import from and the module's name: a file inside a package is that package's module."""
    root, parts = file.parent, [file.stem]
    while (root / "__init__.py").is_file() and root.parent != root:
        parts.insert(0, root.name)
        root = root.parent
    if len(parts) > 1 and parts[-1] == "__init__":
        parts.pop()
    if all(part.isidentifier() for part in parts) and not _taken(parts[0], root):
        return root, ".".join(parts)
    plain = "".join(character if character.isalnum() else "_" for character in file.stem)
    return file.parent, ALIAS + plain


def _taken(name: str, root: Path) -> bool:
    """Whether the name belongs to another module, or to a module of the standard library that other code imports."""
    if name in sys.stdlib_module_names:
        return True
    known = sys.modules.get(name)
    if known is None:
        return False
    origin = getattr(known, "__file__", None)
    return origin is None or not Path(origin).resolve().is_relative_to(root.resolve())


def _import_file(file: Path, name: str) -> ModuleType:
    known = sys.modules.get(name)
    if known is not None:
        return known
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None, "a .py file has a loader"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _only_app(module: ModuleType, target: Target) -> str:
    apps = apps_in(module)
    if not apps:
        raise ProgramError(
            f"{target.text} holds no Windlass app; write in it: from windlass import Windlass; app = Windlass()"
        )
    if len(apps) > 1:
        first = next(iter(apps))
        raise ProgramError(
            f"{target.text} holds {len(apps)} apps: {', '.join(apps)}; choose one, for example {target.text}:{first}"
        )
    return next(iter(apps))


def _named_app(module: ModuleType, name: str, target: Target) -> Windlass:
    from windlass.declare.jobtype import JobType

    apps = apps_in(module)
    found: object = getattr(module, name, None)
    for app in apps.values():
        if app is found:
            return app
    if isinstance(found, JobType):
        raise ProgramError(
            f"{target.text}:{name} is a job and no app; its program is {target.text}; to run one such job: "
            f"windlass run {target.text}:{name}"
        )
    if found is not None:
        raise ProgramError(f"{target.text}:{name} is a {type(found).__name__} and no Windlass app{_near(name, apps)}")
    raise ProgramError(f"{target.text} has no {name!r}{_near(name, apps)}")


def apps_in(module: ModuleType) -> dict[str, Windlass]:
    """The apps of a module by name; an app with two names is listed once."""
    from windlass.app import Windlass

    apps: dict[str, Windlass] = {}
    for name, value in vars(module).items():
        if isinstance(value, Windlass) and not any(value is known for known in apps.values()):
            apps[name] = value
    return apps


def _example(target: Target, jobs: Mapping[str, object]) -> str:
    if not jobs:
        return f"; {target.text} has none yet: write @app.job above a function"
    return f", for example {target.text}:{next(iter(jobs))}; there are: {', '.join(jobs)}"


def _near(name: str, known: Iterable[str]) -> str:
    known = list(known)
    close = difflib.get_close_matches(name, known, n=2)
    if close:
        return f"; did you mean {' or '.join(map(repr, close))}?"
    return f"; there are: {', '.join(known)}" if known else ""


def _explain_missing_file(text: str, file: Path) -> str:
    if file.is_dir():
        return f"{text} is a directory; name a file in it{_files_near('app.py', file)}"
    if file.with_name(f"{file.name}.py").is_file():
        return f"{text} is not a file; did you mean {text}.py?"
    if not file.parent.is_dir():
        return f"{text} does not exist, and neither does the directory {shorten(file.parent)}"
    where = "" if Path(text).is_absolute() else f" in {Path.cwd()}"
    return f"{text} does not exist{where}{_files_near(file.name, file.parent)}"


def _files_near(name: str, directory: Path) -> str:
    files = sorted(entry.name for entry in directory.glob("*.py"))
    close = difflib.get_close_matches(name, files, n=3, cutoff=0.5)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; there are: {', '.join(files[:8])}" if files else f"; {shorten(directory)} has no Python file"


def _explain_missing_module(target: Target, missing: str) -> str:
    parent, _, last = missing.rpartition(".")
    directory = Path.cwd().joinpath(*parent.split(".")) if parent else Path.cwd()
    names = [entry.stem for entry in directory.glob("*.py") if entry.stem.isidentifier()]
    names += [entry.parent.name for entry in directory.glob("*/__init__.py")]
    close = difflib.get_close_matches(last, names, n=1)
    hint = f"; did you mean {parent + '.' if parent else ''}{close[0]}?" if close else ""
    if parent and (Path.cwd() / f"{parent.replace('.', '/')}.py").is_file():
        hint = f"; {parent} is a file: did you mean {parent}:{last}?"
    hint = hint or "; go to its directory, or name its file, such as path/to/app.py"
    return f"there is no module {missing!r}, neither below {Path.cwd()} nor installed{hint}"


def _explain_syntax(error: SyntaxError) -> str:
    """File, line and text, with the mark below it as Python prints it."""
    place = f"{shorten(Path(error.filename))}, line {error.lineno}" if error.filename else "the program"
    shown = [line.rstrip() for line in "".join(traceback.format_exception_only(error)).splitlines()[1:-1]]
    return "\n".join([f"{place}: {error.msg}", *shown])


def _explain(target: Target, error: BaseException) -> str:
    """The program's own error, and the last calls before it."""
    kind = type(error).__name__
    message = f"{kind}: {error}" if str(error) else kind
    if isinstance(error, SystemExit):
        message = f"it called sys.exit({error.code!r}) while it was imported; put that below if __name__ == '__main__':"
    elif isinstance(error, ModuleNotFoundError):
        message += f"; install it for {sys.executable}, or run windlass from the environment that has it"
    linecache.checkcache()
    frames = _own_frames(error)[-FRAMES_SHOWN:]
    return "\n".join([f"{target.text} cannot be imported: {message}", *map(_frame, frames)])


def _frame(frame: traceback.FrameSummary) -> str:
    return f"  {shorten(Path(frame.filename))}, line {frame.lineno}, in {frame.name}\n    {frame.line}".rstrip()


def _own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames of the program itself: neither the import system's nor Windlass's."""
    others = (Path(__file__).parents[1], Path(importlib.__file__).parent)
    return [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<frozen importlib", "<string>"))
        and not any(Path(frame.filename).is_relative_to(other) for other in others)
    ]


def _last_place(error: BaseException) -> str | None:
    frames = _own_frames(error)
    return f"{shorten(Path(frames[-1].filename))}, line {frames[-1].lineno}" if frames else None


def shorten(path: Path) -> str:
    """The path relative to the current directory."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)

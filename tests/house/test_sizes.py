"""How large files, functions and folders may be, and that a class name stands for one thing."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from pathlib import Path

from .source import PACKAGE, classes, expect_none, functions, modules, short, tree

LINES = 400  # of a file
BODY = 40  # lines of a function, its docstring and decorators not counted
MODULES = 15  # of a folder, __init__.py not counted

LARGE_FILES: dict[str, str] = {}
LARGE_FUNCTIONS: dict[str, str] = {}
LARGE_FOLDERS = {
    "src/windlass/cli/commands": "one module per command",
}
SHARED_NAMES = {
    "Lane": "a range of each store's own index of claimable jobs, in the order of its columns",
    "Finding": "what a check found and the next command: of the store by `doctor`, of a broker by `broker check`",
    "Level": "of a finding of `doctor`, and the class of priority of a delivery: neither meets the other",
    "Message": "between the processes of a worker, and to a broker: neither meets the other",
    "Session": "each store has its own",
    "WindlassBackend": "of Django's own tasks and of the package that brings them to older versions",
}
"""Class names that several modules have, each with the reason why it is the same thing."""


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, without the docstring."""
    documented = ast.get_docstring(node, clean=False) is not None
    skipped = (node.body[0].end_lineno or 0) - node.body[0].lineno + 1 if documented else 0
    return (node.end_lineno or 0) - node.lineno + 1 - skipped


def test_files_are_short() -> None:
    long = {short(path): lines for path in [*modules().values(), *sql()] if (lines := lines_of(path)) > LINES}

    expect_none(
        (f"{path} has {lines}" for path, lines in long.items() if path not in LARGE_FILES),
        f"a file has {LINES} lines at most; move one of its subjects into a file that is named by a noun",
    )
    expect_none(set(LARGE_FILES) - set(long), "short enough now: take these out of LARGE_FILES")


def test_functions_are_short() -> None:
    long = {f"{short(path)} {node.name}": length(node) for path, node in functions() if length(node) > BODY}

    expect_none(
        (f"{place} has {lines}" for place, lines in long.items() if place not in LARGE_FUNCTIONS),
        f"a function has {BODY} lines at most; give its steps names of their own",
    )
    expect_none(set(LARGE_FUNCTIONS) - set(long), "short enough now: take these out of LARGE_FUNCTIONS")


def test_folders_are_small() -> None:
    held = Counter(short(path.parent) for path in modules().values() if path.name != "__init__.py")
    large = {folder: count for folder, count in held.items() if count > MODULES}

    expect_none(
        (f"{folder} has {count}" for folder, count in large.items() if folder not in LARGE_FOLDERS),
        f"a folder has {MODULES} modules at most; give some of them, with one subject, a folder of their own",
    )
    expect_none(set(LARGE_FOLDERS) - set(large), "small enough now: take these out of LARGE_FOLDERS")


def test_each_folder_says_what_lives_there() -> None:
    folders = {path.parent for path in modules().values()}
    expect_none(
        (short(folder) for folder in folders if not is_described(folder)),
        "give these folders an __init__.py whose docstring says in one sentence what lives there",
    )


def test_a_class_name_stands_for_one_thing() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path, node in classes():
        places[node.name].append(f"{short(path)}:{node.lineno}")
    shared = {name: where for name, where in places.items() if len(where) > 1}

    expect_none(
        (f"{name}: {', '.join(where)}" for name, where in shared.items() if name not in SHARED_NAMES),
        "two things have one name; rename one of them by what it is, or give the reason in SHARED_NAMES",
    )
    expect_none(set(SHARED_NAMES) - set(shared), "these names are unique now: take them out of SHARED_NAMES")


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def sql() -> list[Path]:
    return sorted(PACKAGE.rglob("*.sql"))


def is_described(folder: Path) -> bool:
    start = folder / "__init__.py"
    return start.exists() and bool(ast.get_docstring(tree(start)))

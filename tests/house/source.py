"""The source tree as the tests of this folder read it: modules, syntax trees, imports, comments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "windlass"

STRING_OR_COMMENT = re.compile(
    r'''("""|\'\'\')(?:\\.|.)*?\1|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*''', re.DOTALL
)
"""Finds the same comments as `tokenize`, sooner."""


def expect_none(places: Iterable[str], advice: str) -> None:
    """Fail with the advice and every place, if there is one."""
    listed = sorted(places)
    if listed:
        pytest.fail("\n  ".join([f"{advice}:", *listed]), pytrace=False)


class Import(NamedTuple):
    module: str
    imported: str  # a module of Windlass
    line: int
    at_start: bool  # False inside a function and under TYPE_CHECKING


class Comment(NamedTuple):
    file: str
    line: int
    text: str


@cache
def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    return {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree(path)))


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def imports() -> tuple[Import, ...]:
    """Every import of a module of Windlass by another one."""
    return tuple(found for name, path in modules().items() for found in _imports(name, tree(path), at_start=True))


def _imports(module: str, node: ast.AST, *, at_start: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            for imported in sorted(_imported(child)):
                if imported.split(".")[0] == "windlass":
                    yield Import(module, imported, child.lineno, at_start)
        else:
            later = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or _is_for_types(child)
            yield from _imports(module, child, at_start=at_start and not later)


def _imported(node: ast.Import | ast.ImportFrom) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    assert node.module is not None, "the package has absolute imports only"
    names = {f"{node.module}.{alias.name}" for alias in node.names}
    return {name if name in modules() else node.module for name in names}


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    for path in modules().values():
        yield from ((path, node) for node in nodes(path) if isinstance(node, ast.ClassDef))


def functions() -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path in modules().values():
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield path, node


@cache
def comments() -> tuple[Comment, ...]:
    """Comments and docstrings of the package, line by line, its SQL included."""
    return tuple(_comments())


def _comments() -> Iterator[Comment]:
    for path in modules().values():
        yield from _comments_of_python(path)
    for path in sorted(PACKAGE.rglob("*.sql")):
        for line, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if "--" in text:
                yield Comment(short(path), line, text.partition("--")[2])


def _comments_of_python(path: Path) -> Iterator[Comment]:
    text = path.read_text(encoding="utf-8")
    for found in STRING_OR_COMMENT.finditer(text):
        if found[0].startswith("#"):
            yield Comment(short(path), text.count("\n", 0, found.start()) + 1, found[0])
    for node in nodes(path):
        # A string that stands alone: the docstring of what is above it or around it.
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for line, part in enumerate(node.value.value.splitlines(), start=node.lineno):
                yield Comment(short(path), line, part)

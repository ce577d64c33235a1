"""What users import: each public name once, in order, there, and with a docstring of its own."""

from __future__ import annotations

import ast
import importlib
import typing
from collections.abc import Iterator
from types import FunctionType, MethodType

import pytest

from windlass import errors
from windlass.observe import events

from .source import expect_none, modules, tree

PUBLIC = ("windlass", "windlass.testing")
ROW_MODULES = ("windlass.model.admission", "windlass.model.schedule", "windlass.store.protocol")


def exported() -> dict[str, list[str]]:
    """`__all__` of every module that has one."""
    return {
        name: ast.literal_eval(node.value)
        for name, path in modules().items()
        for node in tree(path).body
        if isinstance(node, ast.Assign) and "__all__" in map(ast.unparse, node.targets)
    }


@pytest.mark.parametrize("name", exported())
def test_exported_names_are_sorted_and_listed_once(name: str) -> None:
    names = exported()[name]

    assert names == sorted(set(names)), f"sort `__all__` of {name}, capitals first, and list each name once"


@pytest.mark.parametrize("name", PUBLIC)
def test_exported_names_exist(name: str) -> None:
    module = importlib.import_module(name)

    expect_none(
        (item for item in exported()[name] if not hasattr(module, item)),
        f"{name} lists these and does not have them: import them there, or take them out of `__all__`",
    )


@pytest.mark.parametrize("name", PUBLIC)
def test_exported_names_are_documented(name: str) -> None:
    module = importlib.import_module(name)

    expect_none(
        (item for item in exported()[name] if not is_documented(getattr(module, item))),
        f"give these names of {name} a docstring of their own, because help() shows it first",
    )


@pytest.mark.parametrize("name", PUBLIC)
def test_methods_of_exported_classes_are_documented(name: str) -> None:
    """Given every class that users import, each method and property that the package wrote has a docstring."""
    module = importlib.import_module(name)
    classes = [item for item in (getattr(module, each) for each in exported()[name]) if isinstance(item, type)]

    expect_none(
        {f"{owner.__qualname__}.{method}" for item in classes for owner, method in undocumented(item)},
        "give these methods a docstring of their own, with an example: help() and docs/reference.md show it",
    )


@pytest.mark.parametrize("name", PUBLIC)
def test_imported_names_are_exported(name: str) -> None:
    """A name that is imported from the package and not listed is an omission, or an accident."""
    imported = {
        alias.asname or alias.name
        for node in tree(modules()[name]).body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("windlass")
        for alias in node.names
    }

    expect_none(imported - set(exported()[name]), f"list these in `__all__` of {name}, or do not import them there")


def test_errors_events_and_rows_can_be_imported_from_the_package() -> None:
    """A program catches, receives and reads them: it need not know the module of each."""
    listed = set(exported()["windlass"])
    wanted = {name for name, value in vars(errors).items() if isinstance(value, type) and name != "annotations"}
    wanted |= {event.__name__ for event in typing.get_args(events.Event)}
    wanted |= {name for module in ROW_MODULES for name in vars(importlib.import_module(module)) if name.endswith("Row")}

    expect_none(wanted - listed, "list these in `__all__` of windlass: programs use them")


def undocumented(item: type) -> Iterator[tuple[type, str]]:
    """The public methods and properties of a class and of its bases that have no docstring, each with its class."""
    for owner in item.__mro__:
        for name in vars(owner) if owner.__module__.startswith("windlass") else ():
            method = getattr(owner, name)
            written = isinstance(method, FunctionType | MethodType | property)
            if written and not name.startswith("_") and not (method.__doc__ or "").strip():
                yield owner, name


def is_documented(thing: object) -> bool:
    """Whether a docstring was written here: dataclasses make one of the signature, and a subclass shows its base's."""
    written = getattr(thing, "__doc__", None) or ""
    inherited = isinstance(thing, type) and any(written == base.__doc__ for base in thing.__mro__[1:])
    return bool(written) and not inherited and not written.startswith(f"{getattr(thing, '__name__', '')}(")

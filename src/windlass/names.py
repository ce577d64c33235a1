"""The one rule for names that users and programs give: types, queues, tenants and keys."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from windlass.errors import ConfigError

LONGEST_NAME = 200  # characters


def name_problem(name: object, *, longest: int = LONGEST_NAME) -> str | None:
    """Why a name cannot be used; None when it can."""
    if not isinstance(name, str):
        return f"must be text, not {type(name).__name__}"
    if not name or name.isspace():
        return "is empty"
    if len(name) > longest:
        return f"has {len(name)} characters; {longest} is the most"
    if name != name.strip():
        return "begins or ends with white space"
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        return f"contains a control character or half a surrogate pair: {name!a}"
    return None


def list_names(what: str, given: Iterable[str] | None) -> tuple[str, ...] | None:
    """Names that a program lists, such as `queues=["mail"]`. One text would be taken for a list of its letters."""
    listed = None if given is None else tuple(given)
    if isinstance(given, str):
        raise ConfigError(f"{what}={given!r} is one name; write a list: {what}=[{given!r}]")
    for name in listed or ():
        if not isinstance(name, str):
            raise ConfigError(f"{what} lists {name!r}, which is no name; write: {what}=['mail']")
    return listed


def listed_names(value: object) -> tuple[str, ...]:
    """Names of a setting: a list of texts, or a text with commas between them as an environment has it."""
    listed = value.split(",") if isinstance(value, str) else value
    if not isinstance(listed, Iterable):
        raise ConfigError(f"{value!r} is no list of names; write it like ['iban', 'account_number']")
    names = tuple(name.strip() if isinstance(name, str) else name for name in listed)
    for name in names:
        wrong = name_problem(name)
        if wrong is None and not any(letter.isalpha() for letter in name):
            wrong = "has no letter"
        if wrong is not None:
            raise ConfigError(f"the name {name!r} {wrong}; write it like ['iban', 'account_number']")
    return names

"""How settings are read: the text of a value, the environment, `windlass.toml` and `[tool.windlass]`.

`config.py` has the settings themselves.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from windlass.address import plain_url, read_address
from windlass.broker_address import read_broker_address
from windlass.errors import ConfigError

PREFIX = "WINDLASS_"
OTHER_VARIABLES = frozenset({"WINDLASS_APP", "WINDLASS_DEBUG", "WINDLASS_FAILPOINTS", "WINDLASS_LOG_FORMAT"})
"""Environment variables of Windlass that are not settings."""


def whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ConfigError(f"{value!r} is not a whole number")
    try:
        return int(value)
    except ValueError:
        raise ConfigError(f"{value!r} is not a whole number") from None


def switch(value: object) -> bool:
    word = str(value).strip().lower()
    if word not in ("on", "off", "true", "false", "yes", "no", "1", "0"):
        raise ConfigError(f"{value!r} is neither on nor off")
    return word in ("on", "true", "yes", "1")


def text(value: object) -> str:
    return str(value)


def store_url(value: object) -> str:
    read_address(str(value))
    return plain_url(str(value))


def broker_url(value: object) -> str:
    read_broker_address(str(value))
    return str(value).strip()


def redis_url(value: object) -> str:
    if read_broker_address(str(value)).kind == "rabbitmq":
        raise ConfigError("rates are kept in the store, or in Redis: write redis://…, rediss://… or redis+sentinel://…")
    return str(value).strip()


SECRET = (store_url, broker_url, redis_url)
"""Readers of values that may hold a password: their values are in no repr and in no error."""


def one_of(*words: str) -> Callable[[object], str]:
    """A reader that takes these words and no others."""

    def read(value: object) -> str:
        if str(value) not in words:
            raise ConfigError(f"{value!r} is none of: {', '.join(words)}")
        return str(value)

    return read


def read_environment(environ: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """The settings among `WINDLASS_*`; `known` has each setting's name by its variable.

    Other names may belong to other programs, but a near miss is a typing error.
    """
    found: dict[str, str] = {}
    for given, value in environ.items():
        if given in known and value != "":
            found[known[given]] = value
        elif given.startswith(PREFIX) and given not in known and given not in OTHER_VARIABLES:
            close = difflib.get_close_matches(given, known, n=1, cutoff=0.9)
            if close:
                raise ConfigError(f"unknown setting {given}; did you mean {close[0]}?")
    return found


def read_files(folder: Path) -> list[tuple[str, Mapping[str, Any]]]:
    """`windlass.toml` and `[tool.windlass]`, each from the nearest folder that has it, from this one upwards."""
    sources: list[tuple[str, Mapping[str, Any]]] = []
    for name in ("windlass.toml", "pyproject.toml"):
        path = next((above / name for above in (folder, *folder.parents) if (above / name).is_file()), None)
        if path is None:
            continue
        table: Any = _toml(path)
        if name == "pyproject.toml":
            table = table.get("tool", {}).get("windlass", {})
        sources.append((_near(path), {str(key).replace("-", "_"): value for key, value in table.items()}))
    return sources


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{_near(path)} cannot be read: {error}; correct it, or move it away") from None


def _near(path: Path) -> str:
    """The path relative to the current directory."""
    return os.path.relpath(path)

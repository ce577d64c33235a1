"""`settings.WINDLASS`: Windlass's own settings in capitals, and three that only a Django project has.

URL       the store, where it is not one of the project's databases
DATABASE  the alias of the database that holds the jobs, "default" unless there is a URL
MODULES   modules with jobs or tasks that a worker would not import by itself
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS

from windlass.config import Settings, suggest

OWN = ("URL", "DATABASE", "MODULES")


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What a project says about its jobs."""

    url: str | None = None
    database: str | None = None  # None: the jobs are in none of the project's databases
    modules: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls) -> Configuration:
        """From the settings as they are now: tests change them."""
        given = getattr(settings, "WINDLASS", {})
        if not isinstance(given, Mapping):
            raise ImproperlyConfigured(f'WINDLASS must be a dict such as {{"CONCURRENCY": 20}}, not {given!r}')
        known = dict.fromkeys([*OWN, *(item.name.upper() for item in fields(Settings))])
        for key in given:
            if key not in known:
                raise ImproperlyConfigured(f"WINDLASS has no key {key!r}{suggest(str(key), known)}")
        modules = given.get("MODULES", ())
        if isinstance(modules, str) or not all(isinstance(module, str) for module in modules):
            raise ImproperlyConfigured(f'WINDLASS["MODULES"] must be a list such as ["shop.emails"], not {modules!r}')
        url = given.get("URL")
        return cls(
            url=url,
            database=_alias(given.get("DATABASE", None if url else DEFAULT_DB_ALIAS)),
            modules=tuple(modules),
            settings={key.lower(): value for key, value in given.items() if key not in OWN},
        )


def _alias(alias: object) -> str | None:
    if alias is None:
        return None
    if alias not in settings.DATABASES:
        raise ImproperlyConfigured(
            f'WINDLASS["DATABASE"] is {alias!r}, which is not in DATABASES{suggest(str(alias), settings.DATABASES)}'
        )
    return str(alias)

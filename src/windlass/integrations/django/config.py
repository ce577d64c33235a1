"""`settings.WINDLASS`, and what `manage.py check` reports about it.

The keys are Windlass's own settings in capitals, and three that only a Django project has:

URL       the store, if the jobs are in none of the project's databases
DATABASE  the alias of the database that holds the jobs; "default" unless there is a URL
MODULES   modules with jobs or tasks that a worker would not import by itself
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS

from windlass.config import Settings, suggest
from windlass.errors import ConfigError
from windlass.integrations.django.database import in_memory, url_of
from windlass.store import dialect_of

DJANGO_KEYS = ("URL", "DATABASE", "MODULES")


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The project's `WINDLASS` setting."""

    url: str | None = None
    database: str | None = None  # None: the jobs are in none of the project's databases
    modules: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls) -> Configuration:
        """Read the settings as they are now: tests change them."""
        given = getattr(settings, "WINDLASS", {})
        if not isinstance(given, Mapping):
            raise ImproperlyConfigured(f'WINDLASS must be a dict such as {{"CONCURRENCY": 20}}, not {given!r}')
        known = dict.fromkeys([*DJANGO_KEYS, *(item.name.upper() for item in fields(Settings))])
        for key in given:
            if key not in known:
                raise ImproperlyConfigured(f"WINDLASS has no key {key!r}{suggest(str(key), known)}")
        modules = given.get("MODULES", ())
        if isinstance(modules, str) or not all(isinstance(module, str) for module in modules):
            raise ImproperlyConfigured(f'WINDLASS["MODULES"] must be a list such as ["shop.emails"], not {modules!r}')
        url = given.get("URL")
        return cls(
            url=url,
            database=_check_alias(given.get("DATABASE", None if url else DEFAULT_DB_ALIAS)),
            modules=tuple(modules),
            settings={key.lower(): value for key, value in given.items() if key not in DJANGO_KEYS},
        )


def _check_alias(alias: object) -> str | None:
    if alias is None:
        return None
    if alias not in settings.DATABASES:
        raise ImproperlyConfigured(
            f'WINDLASS["DATABASE"] is {alias!r}, which is not in DATABASES{suggest(str(alias), settings.DATABASES)}'
        )
    return str(alias)


# Checks of `manage.py check`


def check_settings(app_configs: object = None, **rest: Any) -> list[CheckMessage]:
    """Check that WINDLASS can be read.

    A database in memory is an error only when it is used: many projects test with one.
    """
    try:
        configuration = Configuration.read()
        Settings.load(url=configuration.url, **configuration.settings)
        if configuration.url is not None:
            dialect_of(configuration.url)
        elif configuration.database is not None and not in_memory(configuration.database):
            url_of(configuration.database)
    except (ImproperlyConfigured, ConfigError) as error:
        return [Error(str(error), hint="See WINDLASS in the project's settings.", id="windlass.E001")]
    return []


def check_installed() -> list[CheckMessage]:
    """Check INSTALLED_APPS for a task backend, which can be configured without the app."""
    if apps.is_installed("windlass.integrations.django"):
        return []
    hint = 'INSTALLED_APPS += ["windlass.integrations.django"]'
    return [Error("TASKS uses Windlass, which is not installed as an app.", hint=hint, id="windlass.E002")]

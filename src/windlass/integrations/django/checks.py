"""What `manage.py check` says about Windlass's settings."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured

from windlass.errors import ConfigError


def check_settings(app_configs: object = None, **rest: Any) -> list[CheckMessage]:
    """Whether WINDLASS can be read. A database in memory is told when it is used: many projects test with one."""
    from windlass.config import Settings
    from windlass.integrations.django.config import Configuration
    from windlass.integrations.django.database import in_memory, url_of
    from windlass.store import dialect_of

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
    """For the task backends, which can be configured without the app."""
    from django.apps import apps

    if apps.is_installed("windlass.integrations.django"):
        return []
    hint = 'INSTALLED_APPS += ["windlass.integrations.django"]'
    return [Error("TASKS uses Windlass, which is not installed as an app.", hint=hint, id="windlass.E002")]

"""Windlass as an installed app: `manage.py windlass …`, and Windlass's schema with `manage.py migrate`."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core import checks, mail
from django.db.models.signals import post_migrate


class WindlassConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    """`INSTALLED_APPS += ["windlass.integrations.django"]`"""

    name = "windlass.integrations.django"
    label = "windlass"
    verbose_name = "Windlass"

    def ready(self) -> None:
        from windlass.integrations.django.config import check_settings

        checks.register(check_settings)
        post_migrate.connect(migrate_windlass, sender=self)


def migrate_windlass(sender: object, *, using: str, verbosity: int = 1, **rest: Any) -> None:
    """Apply Windlass's own migrations to the same database, after `manage.py migrate` and for a test run's database."""
    from windlass.integrations.django import app
    from windlass.integrations.django.config import Configuration
    from windlass.integrations.django.database import in_memory

    if Configuration.read().database != using or in_memory(using):
        return  # the jobs are in another database: `manage.py windlass migrate` migrates that one
    steps = app.migrate()
    if hasattr(mail, "outbox"):
        # A test run. This opens a SQLite file's store now: later, while a TestCase holds the file's lock, the opening
        # would wait for ever.
        app.counts()
    else:
        app.close()
    if steps and verbosity >= 1:
        print(f"  Windlass: applied {', '.join(f'{step.number:04} {step.name}' for step in steps)}")

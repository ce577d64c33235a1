"""Windlass as an installed app: `manage.py windlass …`, and the schema with `manage.py migrate`."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core import mail
from django.db.models.signals import post_migrate


class WindlassConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    """`INSTALLED_APPS += ["windlass.integrations.django"]`"""

    name = "windlass.integrations.django"
    label = "windlass"
    verbose_name = "Windlass"

    def ready(self) -> None:
        from django.core import checks

        from windlass.integrations.django.checks import check_settings

        checks.register(check_settings)
        post_migrate.connect(bring_up_to_date, sender=self)


def bring_up_to_date(sender: object, *, using: str, verbosity: int = 1, **rest: Any) -> None:
    """After `manage.py migrate`, and for the database of a test run: Windlass's own schema, in the same database."""
    from windlass.integrations.django import app
    from windlass.integrations.django.config import Configuration
    from windlass.integrations.django.database import in_memory

    if Configuration.read().database != using or in_memory(using):
        return  # jobs are elsewhere: `manage.py windlass migrate` goes there
    steps = app.migrate()
    if hasattr(mail, "outbox"):
        app.counts()  # a test run: opens a file's store, which waits for ever once a TestCase holds its lock
    else:
        app.close()
    if steps and verbosity >= 1:
        print(f"  Windlass: applied {', '.join(f'{step.number:04} {step.name}' for step in steps)}")

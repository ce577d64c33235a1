"""What a worker imports of a project, so that it knows the jobs and tasks: never a name that it read from a job."""

from __future__ import annotations

from importlib import import_module

from django.conf import settings
from django.utils.module_loading import autodiscover_modules

from windlass.integrations.django.config import Configuration

NAMES = ("jobs", "tasks")


def discover() -> None:
    """`jobs.py` and `tasks.py` of every installed app, the URLconf with its views, and WINDLASS["MODULES"]."""
    autodiscover_modules(*NAMES)
    if getattr(settings, "ROOT_URLCONF", None):
        import_module(settings.ROOT_URLCONF)
    for module in Configuration.read().modules:
        import_module(module)

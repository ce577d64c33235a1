"""The project as a program: `manage.py windlass worker` runs it, and each process of the worker imports it.

With DJANGO_SETTINGS_MODULE in the environment, `windlass worker windlass.integrations.django.program` does the same.
"""

from __future__ import annotations

import django
from django.apps import apps

if not apps.ready:
    django.setup()

from windlass.integrations.django import app
from windlass.integrations.django.task_registry import discover

discover()

__all__ = ["app"]

"""The project as a program: what `manage.py windlass worker` runs, and each of its processes imports.

With DJANGO_SETTINGS_MODULE in the environment, `windlass worker windlass.integrations.django.program` does the same.
"""

from __future__ import annotations

import django
from django.apps import apps

if not apps.ready:
    django.setup()

from windlass.integrations.django import app
from windlass.integrations.django.discovery import discover
from windlass.integrations.django.run import carrier

carrier()
discover()

__all__ = ["app"]

"""A shop. Its database comes from the environment, so that each test can use one of its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import django

BASE_DIR = Path(__file__).resolve().parent.parent
SECRET_KEY = "not one"
USE_TZ = True
TIME_ZONE = "Europe/Berlin"
ROOT_URLCONF = "project.urls"
ALLOWED_HOSTS = ["testserver"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

BUILT_IN = django.VERSION >= (6, 0) and os.environ.get("PROJECT_TASKS") != "backport"
"""Whether the tasks are Django's own or the backport's: a process has one of them."""

INSTALLED_APPS = ["shop", "windlass.integrations.django", *([] if BUILT_IN else ["django_tasks"])]
WINDLASS: dict[str, Any] = {"POLL": "100ms", "GRACE": "5s"}
TASKS: dict[str, Any] = {
    "default": {
        "BACKEND": f"windlass.integrations.django.{'backend' if BUILT_IN else 'backport'}.WindlassBackend",
        "QUEUES": ["default", "mail"],
    },
    "stubborn": {
        "BACKEND": f"windlass.integrations.django.{'backend' if BUILT_IN else 'backport'}.WindlassBackend",
        "OPTIONS": {"MAX_ATTEMPTS": 2},
    },
}


def database(url: str) -> dict[str, Any]:
    """DATABASES["default"] for `postgresql://…` or `sqlite:///…`."""
    if url.startswith("sqlite"):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": url.removeprefix("sqlite:///")}
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path[1:],
        "USER": parts.username or "",
        "PASSWORD": parts.password or "",
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
    }


DATABASES = {"default": database(os.environ.get("PROJECT_DATABASE", f"sqlite:///{BASE_DIR / 'db.sqlite3'}"))}

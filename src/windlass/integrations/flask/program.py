"""The Flask application as a program: `flask windlass worker` runs it, and each process of the worker imports it.

With FLASK_APP in the environment, `windlass worker windlass.integrations.flask.program` does the same.
"""

from __future__ import annotations

import os

from flask import Flask, current_app, has_app_context
from flask.cli import ScriptInfo

from windlass.app import Windlass
from windlass.errors import ProgramError
from windlass.integrations.flask import EXTENSION, WindlassFlask


def _load() -> Windlass:
    loaded: Flask
    if has_app_context():
        loaded = current_app._get_current_object()  # type: ignore[attr-defined]  # the application behind the proxy
    else:
        loaded = ScriptInfo(app_import_path=os.environ.get("FLASK_APP")).load_app()
    extension = loaded.extensions.get(EXTENSION)
    if not isinstance(extension, WindlassFlask):
        raise ProgramError(
            f"the application {loaded.name!r} has no Windlass; write: WindlassFlask(app), or call init_app(app)"
        )
    return extension.windlass


app = _load()

"""The same databases as the stories of whole workers."""

from __future__ import annotations

from engine.conftest import app, database, file, place

__all__ = ["app", "database", "file", "place"]

"""A temporary database for a framework's project, whose jobs the tests read on connections of their own."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windlass import Windlass

PROJECT = Path(__file__).parent / "django_project"
PATIENCE = 30.0  # seconds until a test gives up; nothing waits that long when it works


@dataclass(kw_only=True)
class Database:
    """A migrated database."""

    url: str
    dialect: str
    apps: list[Windlass] = field(default_factory=list)

    def app(self, **settings: Any) -> Windlass:
        """An app that polls often and stops fast."""
        app = Windlass(self.url, **{"poll": "100ms", "grace": "5s", **settings})
        self.apps.append(app)
        return app

    def alchemy(self, *, asynchronous: bool = False) -> str:
        """The URL as SQLAlchemy writes it."""
        if self.dialect == "sqlite":
            return self.url.replace("sqlite", "sqlite+aiosqlite", 1) if asynchronous else self.url
        return self.url.replace("postgresql", f"postgresql+{'asyncpg' if asynchronous else 'psycopg'}", 1)

    def run(self, sql: str) -> list[Any]:
        """Run SQL on a connection of its own, also while a loop runs; `{}` stands before a table's name."""
        if self.dialect == "sqlite":
            path = self.url.removeprefix("sqlite:///")
            with closing(sqlite3.connect(path, timeout=PATIENCE)) as connection, connection:
                return connection.execute(sql.format("windlass_")).fetchall()
        import psycopg

        with psycopg.connect(self.url) as conn:
            cursor = conn.execute(sql.format("windlass.").encode())
            return cursor.fetchall() if cursor.description else []

    def jobs(self) -> int:
        """The number of jobs in every state."""
        return int(self.run("SELECT (SELECT count(*) FROM {0}jobs) + (SELECT count(*) FROM {0}history)")[0][0])

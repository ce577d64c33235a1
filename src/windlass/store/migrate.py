"""Forward-only, numbered migrations: `store/<dialect>/migrations/NNNN_name.sql`, applied by one migrator at a time.

A schema newer than the program is refused and never changed: an older program cannot know what it means.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Protocol

import msgspec

from windlass.errors import SchemaMissing, SchemaOutdated, SchemaTooNew

MIGRATE = "run: windlass migrate app.py, with the file of your app, or call app.migrate()"
"""Not the bare command: it would migrate the default database, and the program may name another."""


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the schema."""

    number: int
    name: str
    sql: str


class Migrator(Protocol):
    """What `windlass migrate` calls, one per dialect. It opens and closes its own connection."""

    async def current(self) -> int:
        """The schema's number; 0 where there is none."""
        ...

    async def migrate(self) -> list[Migration]:
        """Apply the missing migrations and return them. Waits for another migrator; raises SchemaTooNew."""
        ...


@cache
def migrations(dialect: str) -> tuple[Migration, ...]:
    """All migrations of a dialect, in order."""
    folder = files("windlass.store").joinpath(dialect, "migrations")
    found = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple(
        Migration(
            number=int(name.split("_", 1)[0]),
            name=name.removesuffix(".sql").split("_", 1)[1],
            sql=folder.joinpath(name).read_text(encoding="utf-8"),
        )
        for name in found
    )


def newest(dialect: str) -> int:
    """The number of the schema that this program needs."""
    return migrations(dialect)[-1].number


def missing(dialect: str, current: int) -> list[Migration]:
    """The migrations to apply to a schema with the number `current`."""
    refuse_newer(dialect, current)
    return [migration for migration in migrations(dialect) if migration.number > current]


def check(dialect: str, current: int, where: str) -> None:
    """Raise unless the schema has the number that this program needs."""
    refuse_newer(dialect, current)
    if current == 0:
        raise SchemaMissing(f"{where} has no Windlass schema yet; {MIGRATE}")
    if current < newest(dialect):
        raise SchemaOutdated(f"{where} has schema {current}, and this program needs {newest(dialect)}; {MIGRATE}")


def refuse_newer(dialect: str, current: int) -> None:
    if current > newest(dialect):
        raise SchemaTooNew(
            f"the schema is number {current}, and this program knows {newest(dialect)} at most, so it will not touch "
            "it; upgrade windlass here; in a clone: git pull && pip install ."
        )

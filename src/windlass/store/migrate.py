"""Forward-only, numbered migrations: `store/<dialect>/migrations/NNNN_name.sql`, applied by one migrator at a time.

A program works with a schema of its own number, and with the next one: old and new programs run side by side while a
deploy goes on. So a migration only adds (expand), and what no program uses any more goes one release later (contract).
A schema two numbers ahead is refused and never changed: it may lack what the program needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Protocol

import msgspec

from windlass.errors import SchemaMissing, SchemaOutdated, SchemaTooNew, WorkersOutdated

MIGRATE = "run: windlass migrate app.py, with the file of your app, or call app.migrate()"
"""Not the bare command: it would migrate the default database, and the program may name another."""

AHEAD = 1  # numbers by which a schema may be ahead of a program
LAST_WITH_A_STOP = 9
"""Up to this number a migration may do what makes claims wait. Workers do not write their number in these schemas: the
programs of that time work with their own number alone."""
THEN = "\n-- then\n"  # between the parts of a migration


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the schema."""

    number: int
    name: str
    sql: str

    @property
    def parts(self) -> list[str]:
        """On PostgreSQL each part is a transaction, or one statement that has to be outside of any."""
        return self.sql.split(THEN)

    @property
    def label(self) -> str:
        return f"{self.number:04} {self.name}"


class Migrator(Protocol):
    """What `windlass migrate` calls, one per dialect. It opens and closes its own connection."""

    async def current(self) -> int:
        """The schema's number; 0 where there is none."""
        ...

    async def outdated_workers(self) -> list[str]:
        """The live workers whose programs could not work with the schema that this program needs, by name."""
        ...

    async def migrate(self) -> list[Migration]:
        """Apply the missing migrations and return them. Waits for another migrator.

        Raises SchemaTooNew; WorkersOutdated where `outdated_workers` names any; StoreBusy where a lock was never free.
        """
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


def fits(dialect: str, current: int) -> bool:
    """Whether this program works with a schema of that number."""
    return newest(dialect) <= current <= newest(dialect) + AHEAD


def check(dialect: str, current: int, where: str) -> None:
    """Raise unless this program works with a schema of that number."""
    refuse_newer(dialect, current)
    if current == 0:
        raise SchemaMissing(f"{where} has no Windlass schema yet; {MIGRATE}")
    if current < newest(dialect):
        raise SchemaOutdated(f"{where} has schema {current}, and this program needs {newest(dialect)}; {MIGRATE}")


def refuse_newer(dialect: str, current: int) -> None:
    known = newest(dialect)
    if current > known + AHEAD:
        raise SchemaTooNew(
            f"the schema is number {current}, and this program knows {known}: it is {current - known} versions behind "
            "and will not touch it; upgrade Windlass here; in a clone: git pull && pip install ."
        )


def outdated(dialect: str, workers: Iterable[tuple[str, int]]) -> list[str]:
    """Of live workers and the numbers that they know, those that the newest schema would leave two versions behind."""
    return [f"{name} (knows {number})" for name, number in workers if number + AHEAD < newest(dialect)]


def refuse_outdated(dialect: str, workers: list[str]) -> None:
    if workers:
        raise WorkersOutdated(
            f"schema {newest(dialect)} would leave live workers two versions behind: {', '.join(workers)}; nothing was "
            "changed. Deploy the release between, or stop these workers (windlass workers lists them); then "
            f"{MIGRATE}"
        )

"""Databases for tests are used again when a test left nothing in them but rows, and are gone at the end."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest

from servers import administer, url_of
from windlass.testing.databases import PostgresDatabase

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.postgres

GIVEN = "CREATE TABLE effects (n int)"  # also keeps these databases apart from those of other suites


@contextmanager
def lent() -> Iterator[str]:
    database = PostgresDatabase(url_of("postgres"), given=GIVEN)
    database.create()
    try:
        yield database.url
    finally:
        database.drop()


def test_rows_are_gone_and_the_database_comes_again() -> None:
    with lent() as first:
        administer("INSERT INTO effects VALUES (1)", first)
        administer("INSERT INTO windlass.tenants (name, weight) VALUES ('acme', 2)", first)

    with lent() as second, psycopg.connect(second) as connection:
        assert second == first
        assert connection.execute("SELECT FROM effects").fetchall() == []
        assert connection.execute("SELECT FROM windlass.tenants").fetchall() == []


def test_two_at_once_are_two() -> None:
    with lent() as first, lent() as second:
        assert first != second


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE mine (n int)",
        "CREATE SCHEMA mine",
        "CREATE TYPE mine AS ENUM ('small', 'large')",
        "CREATE DOMAIN mine AS int CHECK (VALUE > 0)",
        "CREATE OPERATOR === (LEFTARG = uuid, RIGHTARG = uuid, FUNCTION = uuid_eq)",
        "CREATE VIEW mine AS SELECT 1",
        "DROP TABLE windlass.ticks",
        "DROP INDEX windlass.jobs_claim",
        "ALTER TABLE windlass.jobs ADD COLUMN mine int",
        "ALTER TABLE windlass.jobs ADD CHECK (priority < 9)",
        "ALTER TABLE windlass.jobs ALTER COLUMN type DROP NOT NULL",
        "CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE RULE mine AS ON INSERT TO windlass.history DO INSTEAD NOTHING",
        "GRANT SELECT ON windlass.jobs TO PUBLIC",
        "ALTER TABLE windlass.jobs SET (fillfactor = 50)",
        "INSERT INTO windlass.migrations (number, name) VALUES (999, 'newer')",
    ],
)
def test_a_database_of_another_shape_does_not_come_again(change: str) -> None:
    with lent() as first:
        administer(change, first)

    with lent() as second:
        assert second != first


def test_a_session_that_a_test_left_open_is_ended_before_the_next_one() -> None:
    with lent() as first:
        left = psycopg.connect(first)
        left.execute("INSERT INTO effects VALUES (1)")  # not committed

    with lent() as second, psycopg.connect(second) as connection:
        assert second == first
        assert connection.execute("SELECT FROM effects").fetchall() == []
        with pytest.raises(psycopg.OperationalError):
            left.commit()


def test_a_process_leaves_none_behind() -> None:
    program = (
        "import sys; from windlass.testing.databases import PostgresDatabase\n"
        "database = PostgresDatabase(sys.argv[1]); database.create(); print(database.url); database.drop()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, url_of("postgres")], capture_output=True, text=True, check=True, env=os.environ
    )

    name = done.stdout.strip().rpartition("/")[2]
    with psycopg.connect(url_of("postgres")) as connection:
        assert connection.execute("SELECT FROM pg_database WHERE datname = %s", [name]).fetchall() == []


def test_a_fork_leaves_the_parents_connections_alone() -> None:
    """A child that dropped them would take them out of the selector that both share, and the parent would hang."""
    with lent():
        pass
    child = os.fork()
    if child == 0:
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

    done = threading.Event()

    def use() -> None:
        with lent() as url:
            administer("SELECT 1", url)
        done.set()

    threading.Thread(target=use, daemon=True).start()
    assert done.wait(30)

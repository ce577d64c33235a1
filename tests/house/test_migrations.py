"""A migration only adds, and no claim waits long for it: programs of the release before work on with the schema.

ARCHITECTURE.md ("How do I write a migration?") has the rules. They hold from the number 10 on: before that everything
stopped for a migration.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from windlass.store.migrate import LAST_WITH_A_STOP, Migration, migrations

from .source import expect_none

COMMENT = re.compile(r"--[^\n]*|'(?:[^']|'')*'")
BODY = re.compile(r"\$(\w*)\$.*?\$\1\$", re.DOTALL)
CONTRACTS = re.compile(r"^-- contracts: (\S.*)$", re.MULTILINE)
"""What a contraction takes away, which no program from the release before on uses."""

TAKES_AWAY = {
    r"\bDROP (?!INDEX CONCURRENTLY)": "the release before uses it; do it a release later, with `-- contracts: …`",
    r"\bRENAME\b": "renames what the release before uses; add the new name, and write both",
    r"\bALTER COLUMN \w+ (SET DATA )?TYPE\b": "rewrites the table under a lock; add a column",
    r"\bSET NOT NULL\b": "refuses rows that the release before writes, and reads the whole table under a lock",
    r"\bADD (COLUMN )?(IF NOT EXISTS )?(?!CONSTRAINT)\w+ (?![^,;]*\bDEFAULT\b)[^,;]*\bNOT NULL\b": (
        "refuses rows that the release before writes; give it a DEFAULT"
    ),
    r"\bDEFAULT (?:gen_random_uuid|random|clock_timestamp|nextval)\b": "rewrites the table under a lock; fill it later",
    r"\bGENERATED ALWAYS AS \(": "rewrites the table under a lock; let the program write it",
    r"\bADD (CONSTRAINT \w+ )?(CHECK|FOREIGN KEY|UNIQUE|PRIMARY KEY|EXCLUDE)\b(?![^;]*\bNOT VALID\b)": (
        "reads or indexes the whole table under a lock; NOT VALID, and VALIDATE in a part of its own"
    ),
    r"\b(UPDATE|DELETE FROM|TRUNCATE) ": "changes rows under locks; the leader fills columns by pages (prune)",
    r"\b(CLUSTER|VACUUM FULL|LOCK TABLE|REINDEX(?! \w+ CONCURRENTLY))\b": "blocks the table",
}
INDEX = "CREATE INDEX CONCURRENTLY IF NOT EXISTS a ON windlass.jobs (trace);"
CREATED = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?(\S+)")
INDEXED = re.compile(r"CREATE (?:UNIQUE )?INDEX (CONCURRENTLY )?(IF NOT EXISTS )?(\w+) ON (?:ONLY )?(\S+)")


def faults(dialect: str, step: Migration) -> Iterator[str]:
    """What a program of the release before, or a claim, would suffer from."""
    sql = COMMENT.sub("''", BODY.sub("''", step.sql))
    made = set(CREATED.findall(sql))
    for statement in sql.split(";"):
        about = re.search(r"(?:ALTER TABLE|UPDATE|TRUNCATE|DELETE FROM|DROP TABLE) (?:IF EXISTS )?(\S+)", statement)
        if (about and about[1] in made) or CONTRACTS.search(step.sql):
            continue
        flat = " ".join(statement.split())
        yield from (f"{flat[:60]}: {why}" for rule, why in TAKES_AWAY.items() if re.search(rule, flat))
    if dialect != "postgres":
        return
    for concurrently, again, name, table in INDEXED.findall(sql):
        if table not in made and not (concurrently and again):
            yield f"{name} blocks writes while it is built: CREATE INDEX CONCURRENTLY IF NOT EXISTS, in its own part"
    for part in step.parts:
        bare = COMMENT.sub("", BODY.sub("", part))
        if "CONCURRENTLY" in bare and bare.strip().rstrip(";").count(";"):
            yield "CONCURRENTLY runs outside of a transaction: it needs a part of its own (a line `-- then`)"
        if len(step.parts) > 1 and re.search(r"\b(ADD COLUMN|CREATE TABLE|CREATE SCHEMA)\b(?! IF NOT EXISTS)", bare):
            yield "a migration with several parts is run again after a kill: IF NOT EXISTS in each of them"
    if "CONCURRENTLY" in COMMENT.sub("", step.parts[-1]):
        yield "the last part is a transaction, which records the number: put the index before it"


@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
def test_a_migration_only_adds(dialect: str) -> None:
    steps = [step for step in migrations(dialect) if step.number > LAST_WITH_A_STOP]

    expect_none(
        (f"{dialect} {step.label}: {fault}" for step in steps for fault in faults(dialect, step)),
        "programs of the release before run on through a migration (ARCHITECTURE.md, How do I write a migration?)",
    )
    assert [step.number for step in migrations(dialect)] == list(range(1, migrations(dialect)[-1].number + 1))


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE windlass.jobs DROP COLUMN trace;",
        "DROP TABLE windlass.links;",
        "ALTER TABLE windlass.jobs RENAME COLUMN trace TO traces;",
        "ALTER TABLE windlass.jobs ADD COLUMN a int NOT NULL;",
        "ALTER TABLE windlass.jobs ADD COLUMN a int DEFAULT 1, ADD COLUMN b int NOT NULL;",
        "ALTER TABLE windlass.jobs ADD COLUMN a uuid NOT NULL DEFAULT gen_random_uuid();",
        "ALTER TABLE windlass.jobs ADD COLUMN a int GENERATED ALWAYS AS (priority + 1) STORED;",
        "ALTER TABLE windlass.jobs ALTER COLUMN attempt TYPE bigint;",
        "ALTER TABLE windlass.jobs ALTER COLUMN trace SET NOT NULL;",
        "ALTER TABLE windlass.jobs ADD CONSTRAINT odd CHECK (attempt > 0);",
        "UPDATE windlass.jobs SET trace = '';",
        "CREATE INDEX jobs_trace ON windlass.jobs (trace);",
        f"{INDEX}\n-- then\nALTER TABLE windlass.jobs ADD COLUMN b int;",
        f"SELECT 1;\n-- then\n{INDEX}",
        f"{INDEX} SELECT 1;\n-- then\nSELECT 1;",
        "LOCK TABLE windlass.jobs;",
    ],
)
def test_a_migration_that_does_more_is_refused(sql: str) -> None:
    assert [*faults("postgres", Migration(number=99, name="bad", sql=sql))]


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE windlass.jobs ADD COLUMN a int;",
        "ALTER TABLE windlass.jobs ADD COLUMN a int NOT NULL DEFAULT 0;",
        "ALTER TABLE windlass.jobs ADD CONSTRAINT odd CHECK (attempt > 0) NOT VALID;",
        "CREATE TABLE windlass.news (id int PRIMARY KEY); CREATE INDEX news_id ON windlass.news (id);",
        f"{INDEX}\n-- then\nSELECT 1;",
        "-- contracts: links, which no program reads since 12\nDROP TABLE windlass.links;",
        "CREATE FUNCTION windlass.f() RETURNS int LANGUAGE sql AS $$ UPDATE windlass.jobs SET trace = '' $$;",
    ],
)
def test_a_migration_that_only_adds_is_not(sql: str) -> None:
    assert [*faults("postgres", Migration(number=99, name="good", sql=sql))] == []

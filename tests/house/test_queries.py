"""The SQL of the stores: the same names in both dialects, no statement unused, no SQL put together in Python.

Statements stand in store/<dialect>/queries/*.sql as blocks `-- name: …`; `windlass.store.sql` reads them.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from windlass.model.state import Verb
from windlass.store import sql

from .source import PACKAGE, expect_none, modules, nodes, short

DIALECTS = ("postgres", "sqlite")
QUERIES = {dialect: PACKAGE / "store" / dialect / "queries" for dialect in DIALECTS}
HOLES = {"brief_columns", "columns", "history_columns", "where", "names", "order"}
"""What a statement may leave open, besides the fragments of its own dialect."""

IN_STEPS = "PostgreSQL does this inside one statement with several writes; SQLite has one write per statement"
IN_MEMORY = (
    "SQLite admits jobs one by one in Python, under the writer's lock; PostgreSQL's claim does it in its statement"
)
OF_A_SERVER = "a server has this, a file does not"

ONE_DIALECT = {
    "postgres": {
        "add_unknown_workers": "SQLite's rescue finds the jobs of workers without a row as they are",
        "cancel": IN_STEPS,
        "claim_delivered": IN_MEMORY,
        "claim_delivered_limited": IN_MEMORY,
        "claim_limited": IN_MEMORY,
        "count_slots": "no job ends on SQLite while the counter's row is made",
        "doctor_schema": OF_A_SERVER,
        "doctor_server": OF_A_SERVER,
        "doctor_snapshots": OF_A_SERVER,
        "doctor_tables": OF_A_SERVER,
        "finish_with_slots": "saves a round trip; SQLite has none and calls release_slots in the same transaction",
        "installation": "a server's location is an id in the database, a file's location is its path",
        "lanes_of_jobs": "SQLite's `lanes` reads no more than that",
        "leases_of_worker": "for rows with times that asyncpg cannot read; SQLite returns numbers",
        "wait_briefly": "a file has one writer, and a trigger is made in its turn",
        "oldest_snapshot": OF_A_SERVER,
        "time": "a file's time is that of the process that reads it",
        "wake_idle_workers": "SQLite's workers watch a number in the file",
    },
    "sqlite": {
        "count_wakes": "PostgreSQL has LISTEN",
        "add_end": IN_STEPS,
        "add_figures": IN_STEPS,
        "attempts_of_jobs": IN_STEPS,
        "any_limit": "saves a read per finish; PostgreSQL reads it in finish_with_slots",
        "archive_cancelled": IN_STEPS,
        "claimed_jobs": IN_STEPS,
        "delete_archived": IN_STEPS,
        "delete_finished": IN_STEPS,
        "delete_from_history": IN_STEPS,
        "delete_from_outbox": IN_STEPS,
        "delivered_jobs": IN_MEMORY,
        "doctor_alive": "PostgreSQL reads it in doctor_tables",
        "drop_audit": "PostgreSQL drops the partition of a day",
        "drop_history": "PostgreSQL drops the partition of a day",
        "due_jobs": IN_MEMORY,
        "due_outbox": IN_STEPS,
        "finish_cancelled": IN_STEPS,
        "free_outbox": IN_STEPS,
        "keep_in_outbox": IN_STEPS,
        "limit_counter": IN_MEMORY,
        "next_due_in_lane": "PostgreSQL reads it with lanes",
        "next_in_outbox": IN_STEPS,
        "park": IN_MEMORY,
        "put_back": IN_STEPS,
        "record_end": IN_STEPS,
        "request_cancel": IN_STEPS,
        "slots_of_jobs": IN_STEPS,
        "take_slots": IN_MEMORY,
        "weights": "PostgreSQL reads them with lanes",
        "worker_is_alive": IN_STEPS,
    },
}
"""Statements that one dialect has alone, with the reason why the other one needs none."""

SQL_IN_PYTHON = {
    "connection/location.py": "asks the user's own connection which database it is, before it is known to be ours",
    "integrations/django/backend_base.py": "reads jobs on Django's own connection",
    "store/doctor/admission.py": "advice that the operator runs by hand",
    "store/postgres/doctor.py": "advice that the operator runs by hand",
    "store/postgres/migrator.py": "the table of migrations, before a schema is there",
    "store/postgres/partitions.py": "the names of partitions, which no parameter can stand for",
    "store/sqlite/bulk.py": "the columns of the statement `enqueue`, for a temporary table",
    "store/sqlite/session.py": "a write that changes nothing, to see whether the file is read-only",
    "store/sqlite/migrator.py": "the table of migrations, before a schema is there",
    "testing/databases.py": "a movable clock, and databases by name, for tests only",
    "testing/given_databases.py": "empties every table of Windlass, for tests only",
}

STATEMENT = re.compile(
    r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|ALTER|DROP|TRUNCATE|COPY)\b.*\bwindlass[._{]", re.DOTALL
)
HOLE = re.compile(r"\{(\w+)\}")
FILLED = {f"{{{name}}}" for name in HOLES}
HEADING = re.compile(r"^-- (name|fragment): (\w+)$", re.MULTILINE)


@cache
def written(dialect: str) -> dict[tuple[str, str], str]:
    """Every statement and fragment as it stands in the files, by its kind and name."""
    found: dict[tuple[str, str], str] = {}
    for path in sorted(QUERIES[dialect].glob("*.sql")):
        _, *parts = HEADING.split(path.read_text(encoding="utf-8"))
        for kind, name, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            assert (kind, name) not in found, f"{kind} {name} stands twice; the second is in {short(path)}: rename it"
            found[kind, name] = text
    return found


def named(dialect: str, kind: str) -> set[str]:
    return {name for of, name in written(dialect) if of == kind}


def holes(text: str) -> set[str]:
    return set(HOLE.findall(re.sub(r"--.*", "", text)))


@cache
def strings() -> dict[Path, list[tuple[int, str]]]:
    """Each string that is no docstring, by file; the expressions of an f-string are written `{}`."""
    found: dict[Path, list[tuple[int, str]]] = {}
    for path in modules().values():
        documentation = {id(node.value) for node in nodes(path) if isinstance(node, ast.Expr)}
        pieces = {id(part) for node in nodes(path) if isinstance(node, ast.JoinedStr) for part in node.values}
        found[path] = [
            (node.lineno, text_of(node))
            for node in nodes(path)
            if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in documentation | pieces
        ]
    return found


def text_of(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) for part in node.values)
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "{}"


def test_both_dialects_have_the_same_files() -> None:
    postgres, sqlite = ({path.name for path in QUERIES[dialect].glob("*.sql")} for dialect in DIALECTS)
    expect_none(postgres ^ sqlite, "one dialect has these files alone: a subject has one file in each")


def test_the_package_reads_what_is_written() -> None:
    for dialect in DIALECTS:
        assert sql.names(dialect) == named(dialect, "name")


@pytest.mark.parametrize(("dialect", "other"), [DIALECTS, DIALECTS[::-1]])
def test_both_dialects_have_the_same_names(dialect: str, other: str) -> None:
    alone = named(dialect, "name") - named(other, "name")

    expect_none(
        alone - set(ONE_DIALECT[dialect]),
        f"{other} has no statements of these names; give both dialects one name for one thing, "
        f"or say in ONE_DIALECT why {other} needs none",
    )
    expect_none(set(ONE_DIALECT[dialect]) - alone, "both dialects have these, or neither: take them out of ONE_DIALECT")


def test_each_asked_statement_exists() -> None:
    """Calls such as query("sqlite", "find"). A name that is made while the program runs cannot be found by a reader."""
    asked = [
        (f"{short(path)}:{node.lineno}", text_of(node.args[0]), text_of(node.args[1]))
        for path in modules().values()
        for node in nodes(path)
        if isinstance(node, ast.Call) and is_query(node)
    ]

    expect_none(
        (
            f"{place} asks for {name} of {dialect}"
            for place, dialect, name in asked
            if "{}" not in (dialect, name) and name not in named(dialect, "name")
        ),
        "no statement has this name: name it whole, as a string, as it stands in the `.sql` file",
    )


def test_each_statement_of_a_generator_exists() -> None:
    """Calls such as run("find", …), partial(run, "find", …) and Statement("find")."""
    expect_none(
        (
            f"{short(path)}:{node.lineno} runs {name}, which {dialect} has not"
            for path in modules().values()
            for node in nodes(path)
            if isinstance(node, ast.Call) and (name := generated(node)) is not None
            for dialect in running(path)
            if name not in named(dialect, "name")
        ),
        "no statement has this name: name it as it stands in the `.sql` files",
    )


def running(path: Path) -> set[str]:
    """The dialects that run a module's statements: its own store's, or both."""
    return {"postgres", "sqlite"} & set(path.parts) or {"postgres", "sqlite"}


def generated(call: ast.Call) -> str | None:
    """The statement's name in such a call."""
    names = [each.id for each in (call.func, *call.args) if isinstance(each, ast.Name)]
    asks = names[:1] in (["run"], ["Statement"]) or names[:2] == ["partial", "run"]
    texts = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return texts[0] if asks and texts else None


def test_each_statement_is_used() -> None:
    asking = [
        found for path, found in strings().items() if path.relative_to(PACKAGE).parts[0] in ("store", "connection")
    ]
    used = {text for found in asking for _, text in found}
    used |= {str(verb) for verb in Verb}  # a store asks for the statement of an operator's verb by its name
    names = {name for dialect in DIALECTS for name in named(dialect, "name")}

    expect_none(names - used, "no module of store/ or connection/ has these names as a string: remove the statements")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_fragment_is_used(dialect: str) -> None:
    used = {hole for text in written(dialect).values() for hole in holes(text)}
    expect_none(
        named(dialect, "fragment") - used, f"no statement of {dialect} has these as a hole: remove the fragments"
    )


@pytest.mark.parametrize("dialect", DIALECTS)
def test_statements_have_declared_holes_only(dialect: str) -> None:
    known = HOLES | named(dialect, "fragment")

    expect_none(
        (f"{name}: {{{hole}}}" for (_, name), text in written(dialect).items() for hole in holes(text) - known),
        f"{dialect}: write this part into the statement, or make it a fragment; Python fills only {sorted(HOLES)}",
    )


def test_holes_are_filled_in_one_place() -> None:
    places = [(path, line) for path, found in strings().items() for line, text in found if text in FILLED]

    expect_none(
        (f"{short(path)}:{line}" for path, line in places if path != PACKAGE / "store" / "sql.py"),
        "store/sql.py alone fills what a statement leaves open: use its functions",
    )


def test_python_holds_no_sql() -> None:
    found = {path: [line for line, text in strings()[path] if STATEMENT.match(text)] for path in strings()}
    holding = {str(path.relative_to(PACKAGE)): lines for path, lines in found.items() if lines}

    expect_none(
        (f"{file}:{line}" for file, lines in holding.items() if file not in SQL_IN_PYTHON for line in lines),
        "move the statement to a `.sql` file as `-- name: …` and use query(); else give the reason in SQL_IN_PYTHON",
    )
    expect_none(set(SQL_IN_PYTHON) - set(holding), "no SQL is left in these: take them out of SQL_IN_PYTHON")


def test_python_adds_nothing_to_a_statement() -> None:
    expect_none(
        (f"{short(path)}:{line}" for path in modules().values() for line in joined(path)),
        "a statement's text is used as it is: write what is added into the `.sql` file, as a fragment or a statement",
    )


def joined(path: Path) -> set[int]:
    """Lines that add to a text that `query()` returned; EXPLAIN may stand before it."""
    found: set[int] = set()
    for node in nodes(path):
        parts: list[ast.AST] = []
        if isinstance(node, ast.BinOp):
            parts = [node.left, node.right]
        elif isinstance(node, ast.JoinedStr) and not text_of(node).startswith("EXPLAIN "):
            parts = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
        found |= {part.lineno for part in parts if isinstance(part, ast.Call) and is_query(part)}
    return found


def is_query(call: ast.Call) -> bool:
    """Whether it is a call such as query(dialect, name) of store/sql.py."""
    named = isinstance(call.func, ast.Name) and call.func.id in ("query", "ordered_query", "query_parts")
    return named and len(call.args) > 1

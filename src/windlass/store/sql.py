"""The SQL of both stores: `store/<dialect>/queries/*.sql`, one file per subject, many named statements in each.

    -- name: find          begins a statement; `query("postgres", "find")` returns its text
    -- fragment: closed    begins a piece of SQL that statements of the same dialect use as `{closed}`
    -- then                separates the parts of a statement that SQLite has to run one after the other

Both dialects have the same names; `tests/house/test_queries.py` lists the exceptions with their reasons. Besides the
names of fragments a statement may hold `{columns}` (the columns of a job's record, in their order), `{brief_columns}`
(the same without input and output), `{where}` (the condition of a search), `{names}` (that of its queues alone) and
`{order}` (the column that orders a lane). They are filled here and nowhere else.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from windlass.model.audit import SUCCEEDED
from windlass.model.job import COLUMNS, DEFAULT_TENANT

LAST = 2**63 - 1
"""Greater than every number of the audit."""

BRIEF = {"input": "'{}' AS input", "output": "NULL AS output"}
"""What a row has instead of these columns where a list does not show them: a large one is stored apart from its row."""

HEADING = re.compile(r"^-- (name|fragment): (\w+)$", re.MULTILINE)
COMMENT = re.compile(r"\A(\s*--[^\n]*\n)+")
PLACEHOLDER = re.compile(r"\{(\w+)\}")


def audit_query(
    dialect: str, *, job: object, action: object, tenant: object, actor: object
) -> tuple[str, list[object]]:
    """The audit's statement with conditions for the given values only, so that each has an index; and the values."""
    where, given = _conditions(dialect, job=job, action=action, tenant=tenant, actor=actor)
    if tenant is not None and tenant != DEFAULT_TENANT:
        where += f" AND tenant <> '{DEFAULT_TENANT}'"  # else neither planner may use the partial index of tenants
    if action not in (None, SUCCEEDED):
        where += f" AND action <> '{SUCCEEDED}'"  # the same for the index of actions
    return query(dialect, "audit").replace("{where}", where), given


def errors_query(dialect: str, *, queue: object, tenant: object) -> tuple[str, list[object]]:
    """The statement `errors` with conditions for the given values only, which its index contains; and the values."""
    where, given = _conditions(dialect, queue=queue, tenant=tenant)
    return query(dialect, "errors").replace("{where}", where), given


def _conditions(dialect: str, **named: object) -> tuple[str, list[object]]:
    """Conditions for the values that are given, as the parameters from the third on, and these values."""
    given = {column: value for column, value in named.items() if value is not None}
    mark = "$" if dialect == "postgres" else "?"
    where = "".join(f" AND {column} = {mark}{place}" for place, column in enumerate(given, start=3))
    return where, [*given.values()]


@cache
def search_query(dialect: str, name: str, where: str, names: str = "") -> str:
    """A search or facets with the condition that `store/parts/search.py` made, and that of the filter's queues alone;
    they hold fixed fragments and parameters only."""
    return query(dialect, name).replace("{where}", where).replace("{names}", names)


@cache
def ordered_query(dialect: str, name: str, order: str) -> str:
    """A statement that reads a lane in the order of `run_at` or of `created_at`."""
    if order not in ("run_at", "created_at"):
        raise ValueError(f"a lane is ordered by run_at or by created_at, not by {order!r}")
    return query(dialect, name).replace("{order}", order)


@cache
def query(dialect: str, name: str) -> str:
    """The text of one statement, with its fragments and columns filled in."""
    statements, fragments = _read(dialect)
    if name not in statements:
        raise LookupError(f"no statement {name!r} in store/{dialect}/queries; add it there as: -- name: {name}")
    return _expand(statements[name], fragments)


@cache
def query_parts(dialect: str, name: str) -> tuple[str, ...]:
    """The parts of a statement that has several, between lines `-- then`."""
    return tuple(part.strip() for part in query(dialect, name).split("\n-- then\n"))


def names(dialect: str) -> set[str]:
    """The names of every statement of a dialect."""
    return set(_read(dialect)[0])


@cache
def _read(dialect: str) -> tuple[dict[str, str], dict[str, str]]:
    """The statements and the fragments of a dialect, as they stand in its files."""
    found: dict[str, dict[str, str]] = {"name": {}, "fragment": {}}
    folder = files("windlass.store").joinpath(dialect, "queries")
    for file in sorted((each for each in folder.iterdir() if each.name.endswith(".sql")), key=lambda each: each.name):
        _, *parts = HEADING.split(file.read_text(encoding="utf-8"))
        for kind, name, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            if name in found[kind]:
                raise ValueError(f"{kind} {name} stands twice in store/{dialect}/queries; the second is in {file.name}")
            found[kind][name] = text.strip() if kind == "name" else COMMENT.sub("", text).strip()
    return found["name"], {
        **found["fragment"],
        "columns": ", ".join(f"jobs.{column}" for column in COLUMNS),
        "brief_columns": ", ".join(BRIEF.get(column, f"jobs.{column}") for column in COLUMNS),
    }


def _expand(text: str, fragments: dict[str, str]) -> str:
    """Fill in fragments, also inside fragments. What is no fragment stays: `{where}`, `{order}`."""

    def fill(found: re.Match[str]) -> str:
        fragment = fragments.get(found[1])
        return found[0] if fragment is None else _expand(fragment, fragments)

    return PLACEHOLDER.sub(fill, text)

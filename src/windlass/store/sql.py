"""SQL lives in `.sql` files, one per step of a job's life, with the same names in both dialects."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from windlass.job import COLUMNS


@cache
def searching(dialect: str, where: str) -> str:
    """The search with the condition that `store/search.py` made; it holds fixed fragments and parameters only."""
    return query(dialect, "search").replace("{where}", where)


@cache
def query(dialect: str, name: str) -> str:
    """The text of `store/<dialect>/queries/<name>.sql`; `{columns}` becomes the record's columns in their order."""
    text = files("windlass.store").joinpath(dialect, "queries", f"{name}.sql").read_text(encoding="utf-8")
    return text.replace("{columns}", ", ".join(f"jobs.{column}" for column in COLUMNS))


@cache
def statements(dialect: str, name: str) -> tuple[str, ...]:
    """The statements of a file that has several, one after the other, between lines `-- then`."""
    return tuple(part.strip() for part in query(dialect, name).split("\n-- then\n"))

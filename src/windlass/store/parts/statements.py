"""Statements without a database: a generator yields statements, a store runs them, and both stores share the logic.

A `Statement` names one statement of the SQL files and carries its one parameter as JSON text. What a generator of
statements returns is what its caller wanted to know. `execute` and `aexecute` are the only loops that run one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import msgspec

T = TypeVar("T")
Asked = TypeVar("Asked")
Given = TypeVar("Given")

Rows = Sequence[Sequence[Any]]

encoder = msgspec.json.Encoder()


class Statement(NamedTuple):
    """One statement: its name, its parameter, and where it makes jobs claimable."""

    name: str
    payload: str | None = None  # JSON text; None where the statement has no parameter
    enqueues: frozenset[str] = frozenset()  # the queues of new jobs that are claimable at once
    wakes: bool = False  # its rows are (job, queue) of waiting jobs that are claimable now
    unparks: bool = False  # its rows are (job, queue) of parked jobs that are claimable now

    def queues_to_wake(self, rows: Rows) -> set[str]:
        """The queues in which workers are to be woken after the commit."""
        return {row[1] for row in rows} if self.wakes or self.unparks else set(self.enqueues)


Statements = Generator[Statement, Rows, T]
"""Yields statements, receives the rows of each, and returns T."""


def run(name: str, payload: object = None, *, wakes: bool = False, unparks: bool = False) -> Statements[Rows]:
    """One statement; returns its rows."""
    text = None if payload is None else encoder.encode(payload).decode()
    rows: Rows = yield Statement(name, text, wakes=wakes, unparks=unparks)
    return rows


def execute(statements: Generator[Asked, Given, T], fetch: Callable[[Asked], Given]) -> T:
    """Run every statement with a blocking call."""
    try:
        statement = next(statements)
        while True:
            statement = statements.send(fetch(statement))
    except StopIteration as end:
        answer: T = end.value
        return answer


async def aexecute(statements: Generator[Asked, Given, T], fetch: Callable[[Asked], Awaitable[Given]]) -> T:
    """Run every statement with an awaited call."""
    try:
        statement = next(statements)
        while True:
            statement = statements.send(await fetch(statement))
    except StopIteration as end:
        answer: T = end.value
        return answer


def uuid_of(value: object) -> UUID:
    """An id as PostgreSQL's driver or as SQLite returns it."""
    return value if isinstance(value, UUID) else UUID(str(value))

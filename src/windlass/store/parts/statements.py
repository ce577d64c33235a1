"""Statements without a database: a generator asks, a store answers, and the same logic serves both of them.

Each `Ask` names a file in `queries/` and brings its one parameter as JSON text.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import msgspec

T = TypeVar("T")

Rows = Sequence[Sequence[Any]]

encoder = msgspec.json.Encoder()


class Ask(NamedTuple):
    """One statement: the name of its file, and its parameter."""

    name: str
    payload: str


Flowing = Generator[Ask, Rows, T]


class Arrival(msgspec.Struct, frozen=True):
    """What a wake-up needs to know of a new job."""

    queue: str
    status: str
    delay: float | None
    run_at: str | None


arrivals_of = msgspec.json.Decoder(list[Arrival])


def queues_of(question: Ask, rows: Rows) -> set[str]:
    """The queues in which a statement made jobs claimable: to be woken after the commit."""
    if question.name in ("wake_waiting", "unpark"):
        return {row[1] for row in rows}
    if question.name != "enqueue":
        return set()
    return {
        new.queue
        for new in arrivals_of.decode(question.payload)
        if new.delay is None and new.run_at is None and new.status == "queued"
    }


def ask(name: str, payload: object) -> Flowing[Rows]:
    rows: Rows = yield Ask(name, encoder.encode(payload).decode())
    return rows


def drive(flowing: Flowing[T], run: Callable[[Ask], Rows]) -> T:
    """Answer every question of a generator with a blocking call."""
    try:
        question = next(flowing)
        while True:
            question = flowing.send(run(question))
    except StopIteration as end:
        answer: T = end.value
        return answer


async def adrive(flowing: Flowing[T], run: Callable[[Ask], Awaitable[Rows]]) -> T:
    """Answer every question of a generator with an awaited call."""
    try:
        question = next(flowing)
        while True:
            question = flowing.send(await run(question))
    except StopIteration as end:
        answer: T = end.value
        return answer


def uuid_of(value: object) -> UUID:
    """An id as PostgreSQL's driver or as SQLite gives it."""
    return value if isinstance(value, UUID) else UUID(str(value))

"""What follows what, as plain values: what a job waits for, what it spawned, where it goes next, what its end brings.

A transition carries a `Flow`, and the store writes it in the transaction that writes the transition. Nothing here
decides: `handler/context.py` and `declare/pipeline.py` make a `Flow`, and `store/parts/consequences.py` says what it
means for other jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec

from windlass.model.job import Edge, NewJob, Policy, Wait
from windlass.model.state import State


class Spawn(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a handler created, under the name by which its next run finds it again."""

    name: str
    job: NewJob


class Advance(msgspec.Struct, frozen=True, kw_only=True):
    """The next phase of a pipeline: what changes about the job."""

    type: str
    phase: str
    phase_rank: int
    queue: str
    max_attempts: int
    limits: tuple[str, ...] = ()  # keys of limits and rates it counts against there


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """What is written beside a transition. Spawns commit with a wait, a finish or the move to the next phase."""

    spawns: tuple[Spawn, ...] = ()
    links: tuple[Link, ...] = ()  # jobs that existed already, found again by name
    memories: tuple[Memory, ...] = ()  # of a sleep or a signal's deadline, with the wait
    wait: Wait | None = None
    advance: Advance | None = None


class Link(msgspec.Struct, frozen=True):
    """A name under which one job knows another."""

    name: str
    target: UUID


class Memory(msgspec.Struct, frozen=True):
    """A step's result, remembered across attempts."""

    name: str
    value: str  # JSON


class Linked(msgspec.Struct, frozen=True):
    """A job known by name, as it is now: a spawned child or a dependency of a graph's node."""

    name: str
    id: UUID
    status: State | None  # None: discarded, or its history has passed
    output: str | None = None  # JSON
    error: str | None = None  # JSON


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """What a waiting job waits for, as the store counts it."""

    need: int
    pending: int
    succeeded: int
    signal: str | None
    wake_at: datetime | None


class Recollection(msgspec.Struct, frozen=True, kw_only=True):
    """What a job's earlier runs left behind: results of steps, and signals that were sent to it."""

    steps: dict[str, str]
    signals: dict[str, str]


class Consequence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A follow-up job, kept on the job itself: whoever writes the transition inserts it, with no program at hand."""

    type: str
    names: tuple[str, ...]  # of its parameters, among: id, input, output, error
    queue: str
    priority: int
    max_attempts: int
    limits: tuple[str, ...] = ()  # keys of limits and rates it counts against
    then: dict[Moment, Consequence] = {}  # its own consequences, so that a chain needs no program either


class Moment(StrEnum):
    """When a consequence follows."""

    DEAD = "dead"
    CANCELLED = "cancelled"
    SUCCEEDED = "succeeded"


Consequences = dict[Moment, Consequence]


def consequences_in(text: str | None) -> Consequences:
    """The follow-ups that a job's row keeps. What is of another shape was not written here, and is left out."""
    found: Consequences = {}
    with suppress(msgspec.DecodeError):
        for moment, consequence in msgspec.json.decode(text or "{}", type=dict[str, msgspec.Raw]).items():
            with suppress(msgspec.DecodeError, ValueError):
                found[Moment(moment)] = msgspec.json.decode(consequence, type=Consequence)
    return found


STRICTNESS = (Policy.FAIL, Policy.SKIP, Policy.COUNT, Policy.CONTINUE)


def redirected(wait: Wait, existing: Mapping[UUID, UUID]) -> Wait:
    """The wait with its edges led to the jobs that are there instead of those that a key refused.

    A job that is awaited twice is awaited once, by the stricter policy.
    """
    edges: dict[UUID, Policy] = {}
    for edge in wait.edges:
        awaited = existing.get(edge.awaited, edge.awaited)
        edges[awaited] = min(edge.policy, edges.get(awaited, edge.policy), key=STRICTNESS.index)
    repeated = len(wait.edges) - len(edges)
    kept = tuple(Edge(awaited, policy) for awaited, policy in edges.items())
    return msgspec.structs.replace(wait, edges=kept, need=max(wait.need - repeated, 0))

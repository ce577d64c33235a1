"""How jobs follow each other, as plain values: a job's waits, its spawns, its next phase, its follow-ups.

A transition carries a `Flow`, and the store writes it in the transaction that writes the transition. This module holds
values only: `handler/context.py` and `declare/pipeline.py` make a `Flow`, and `store/parts/consequences.py` applies it
to other jobs.
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
    """A job that a handler created, with the name by which the handler's next run finds it."""

    name: str
    job: NewJob


class Advance(msgspec.Struct, frozen=True, kw_only=True):
    """The move to the next phase of a pipeline: the columns of the job that change."""

    type: str
    phase: str
    phase_rank: int
    queue: str
    max_attempts: int
    limits: tuple[str, ...] = ()  # keys of limits and rates that the job counts against there


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """What is written beside a transition. Spawns commit with a wait, a finish or the move to the next phase."""

    spawns: tuple[Spawn, ...] = ()
    links: tuple[Link, ...] = ()  # existing jobs, which a later run finds by name
    memories: tuple[Memory, ...] = ()  # deadlines of sleeps and signals, written with the wait
    wait: Wait | None = None
    advance: Advance | None = None


class Link(msgspec.Struct, frozen=True):
    """A name under which one job knows another."""

    name: str
    target: UUID


class Memory(msgspec.Struct, frozen=True):
    """The stored result of a step, for later attempts."""

    name: str
    value: str  # JSON


OUTPUT = " output "
"""Begins the name of the step that keeps a phase's output: a program's own names begin with no white space."""


def kept_output(phase: str, output: str) -> Memory:
    """What a phase returned, kept as a step when the job goes on: the next phase's output replaces the job's own."""
    return Memory(f"{OUTPUT}{phase}", output)


def outputs_in(steps: Mapping[str, str]) -> dict[str, str]:
    """The outputs of earlier phases among a job's steps, as JSON by the names of the phases."""
    return {name.removeprefix(OUTPUT): value for name, value in steps.items() if name.startswith(OUTPUT)}


class Linked(msgspec.Struct, frozen=True):
    """The present state of a linked job: a spawned child or a dependency of a graph's node."""

    name: str
    id: UUID
    status: State | None  # None: discarded, or its history was deleted
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
    """What a job's earlier runs stored (results of steps), and the signals that were sent to it."""

    steps: dict[str, str]
    signals: dict[str, str]


class FollowUp(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A follow-up job, stored on the job itself: the process that writes the end may not have the program."""

    type: str
    names: tuple[str, ...]  # of its parameters, among: id, input, output, error
    queue: str
    priority: int
    max_attempts: int
    limits: tuple[str, ...] = ()  # keys of limits and rates that it counts against
    then: dict[Moment, FollowUp] = {}  # its own follow-ups, so that a chain needs no program either


class Moment(StrEnum):
    """When a follow-up is enqueued."""

    DEAD = "dead"
    CANCELLED = "cancelled"
    SUCCEEDED = "succeeded"


FollowUps = dict[Moment, FollowUp]


def follow_ups_in(text: str | None) -> FollowUps:
    """The follow-ups in a job's row. A value of another shape was not written by Windlass, and is left out."""
    found: FollowUps = {}
    with suppress(msgspec.DecodeError):
        for moment, follow_up in msgspec.json.decode(text or "{}", type=dict[str, msgspec.Raw]).items():
            with suppress(msgspec.DecodeError, ValueError):
                found[Moment(moment)] = msgspec.json.decode(follow_up, type=FollowUp)
    return found


STRICTNESS = (Policy.FAIL, Policy.SKIP, Policy.COUNT, Policy.CONTINUE)


def redirected(wait: Wait, existing: Mapping[UUID, UUID]) -> Wait:
    """The wait with edges to the existing jobs instead of the new jobs that a key refused.

    Two edges to one job become one edge, with the stricter policy.
    """
    edges: dict[UUID, Policy] = {}
    for edge in wait.edges:
        awaited = existing.get(edge.awaited, edge.awaited)
        edges[awaited] = min(edge.policy, edges.get(awaited, edge.policy), key=STRICTNESS.index)
    repeated = len(wait.edges) - len(edges)
    kept = tuple(Edge(awaited, policy) for awaited, policy in edges.items())
    return msgspec.structs.replace(wait, edges=kept, need=max(wait.need - repeated, 0))

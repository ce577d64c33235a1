"""A job type as a document: what a worker announces, so that processes without its program can enqueue its jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from windlass.model.state import State


class TypeKey(msgspec.Struct, frozen=True, kw_only=True):
    """How the unique key of a job is made of its arguments. The other fields are as in `unique(…)`."""

    names: tuple[str, ...]  # of the arguments that make the key
    whole: bool  # all arguments, and not one or several by name
    states: tuple[State, ...]
    window: float | None = None  # seconds
    shared: bool = False  # one key for all tenants
    forever: bool = False


class TypeLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A limit or rate that the jobs of a type count against."""

    name: str
    key: str | None = None  # the argument whose value is counted separately; None: the limit's name decides
    scope: str = "global"


class TypeRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job type or a pipeline in the list of `app.job_types()`, with what an enqueue by name needs to know."""

    name: str  # by which `app.enqueue_named(…)` finds it: the type's, or the pipeline's
    type: str  # of a new job; of a pipeline's job, the type of its first phase
    queue: str
    priority: int = 0
    max_attempts: int
    timeout: float | None = None  # seconds of an attempt; None: no limit
    description: str | None = None  # the first line of the handler's docstring
    parameters: dict[str, Any]  # a JSON Schema of the input
    unique: TypeKey | None = None
    limits: tuple[TypeLimit, ...] = ()
    phases: tuple[str, ...] = ()  # of a pipeline; empty: it is a job type
    local_only: str | None = None
    """Why a process without its program cannot enqueue it, such as a key function; None: every process can."""
    workers: int = 0  # live ones that run it; only `app.job_types()` counts them
    announced_at: datetime | None = None  # by the last worker; None: no worker has announced it
    declared_here: bool = False  # this program declares it


def encode_row(row: TypeRow) -> str:
    """The document that a worker announces: without what only a list knows."""
    return msgspec.json.encode(msgspec.structs.replace(row, workers=0, announced_at=None, declared_here=False)).decode()


def decode_row(document: str, announced_at: datetime) -> TypeRow | None:
    """The row of an announced document; None for a document that this version cannot read."""
    try:
        row = msgspec.json.decode(document, type=TypeRow)
    except msgspec.MsgspecError:
        return None
    return msgspec.structs.replace(row, announced_at=announced_at)

"""Error groups: jobs whose last error has the same type, and the same message but for the parts that change."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

from windlass.model.rows import COUNTED
from windlass.model.state import State

POINTS = 30  # parts of a range in which the failures of a group are counted


class FailedJob(NamedTuple):
    """A job with a failure, as a store reads it. A later attempt may have succeeded."""

    id: UUID
    fingerprint: str
    state: State
    queue: str
    type: str
    tenant: str
    worker: UUID | None  # that ran the attempt
    at: datetime  # when the attempt failed
    ago: float  # seconds from the failure to this read


class ErrorText(NamedTuple):
    """The texts of a job's row that describe its error, as JSON."""

    error: str | None
    attempts: str | None  # only where there is no error: the next phase of a pipeline begins without one


class ErrorShare(msgspec.Struct, frozen=True):
    """How many jobs of a group belong to one queue, type, tenant or worker."""

    name: str
    count: int


class ErrorGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that failed in the same way in a range of time. A job belongs to the group of its last error only."""

    fingerprint: str  # 12 hex digits; the filter `fingerprint:…` finds the jobs
    type: str  # of the error
    message: str  # the first line, with `…` for each part that changes
    count: int  # jobs
    states: Mapping[State, int]  # where the jobs are now; those that succeeded went on after the failure
    queues: tuple[ErrorShare, ...]  # the five with most jobs, and so are the next three
    types: tuple[ErrorShare, ...]  # of the jobs
    tenants: tuple[ErrorShare, ...]
    workers: tuple[ErrorShare, ...]  # by name; by id where the worker's row is gone
    first: datetime  # the oldest failure of the range
    last: datetime
    points: tuple[int, ...]  # failures in each of 30 equal parts of the range, oldest first
    newest: UUID  # the job that failed last
    counted: int = COUNTED  # the most jobs that are read for the whole list, the newest failures first
    more: bool = False  # older failures in the range were not read: every count may be too low

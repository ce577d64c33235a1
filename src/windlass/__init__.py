"""Windlass: durable background jobs for Python, on the database you already have."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from windlass.app import Windlass
from windlass.declare.jobtype import JobType
from windlass.declare.pipeline_type import Pipeline, phase
from windlass.errors import WindlassError
from windlass.handler.children import Child
from windlass.handler.context import Context
from windlass.handles.job import JobHandle
from windlass.model.job import Job
from windlass.model.outcome import Dead, Ending, Retry, Snooze
from windlass.model.state import State
from windlass.policy.limit import per, rate
from windlass.policy.retry import delays, exponential, fixed
from windlass.policy.unique import unique

if TYPE_CHECKING:
    from windlass.handles.batch import Batch
    from windlass.handles.graph import Graph
    from windlass.handles.schedule import Schedule
    from windlass.observe.events import (
        Event,
        JobEnded,
        JobFinished,
        JobsRescued,
        JobStarted,
        LeasesLost,
        WorkerStarted,
        WorkerStopped,
    )

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Child",
    "Context",
    "Dead",
    "Ending",
    "Event",
    "Graph",
    "Job",
    "JobEnded",
    "JobFinished",
    "JobHandle",
    "JobStarted",
    "JobType",
    "JobsRescued",
    "LeasesLost",
    "Pipeline",
    "Retry",
    "Schedule",
    "Snooze",
    "State",
    "Windlass",
    "WindlassError",
    "WorkerStarted",
    "WorkerStopped",
    "delays",
    "exponential",
    "fixed",
    "per",
    "phase",
    "rate",
    "unique",
]

WHEN_NAMED = {
    "Batch": "windlass.handles.batch",
    "Graph": "windlass.handles.graph",
    "Schedule": "windlass.handles.schedule",
    "Event": "windlass.observe.events",
    "JobEnded": "windlass.observe.events",
    "JobFinished": "windlass.observe.events",
    "JobStarted": "windlass.observe.events",
    "JobsRescued": "windlass.observe.events",
    "LeasesLost": "windlass.observe.events",
    "WorkerStarted": "windlass.observe.events",
    "WorkerStopped": "windlass.observe.events",
}
"""Classes that most programs never name, and their modules: imported when a program first names them."""


def __getattr__(name: str) -> object:
    if name not in WHEN_NAMED:
        raise AttributeError(f"module 'windlass' has no attribute {name!r}")
    return getattr(import_module(WHEN_NAMED[name]), name)

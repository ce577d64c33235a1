"""Windlass: durable background jobs for Python, on the database you already have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.app import Windlass
from windlass.children import Child
from windlass.context import Context
from windlass.errors import WindlassError
from windlass.handle import JobHandle
from windlass.job import Job
from windlass.jobtype import JobType
from windlass.outcome import Dead, Retry, Snooze
from windlass.pipelinetype import Pipeline, phase
from windlass.policy.limit import per, rate
from windlass.policy.retry import delays, exponential, fixed
from windlass.policy.unique import unique
from windlass.state import State

if TYPE_CHECKING:
    from windlass.batch import Batch
    from windlass.graph import Graph
    from windlass.scheduled import Schedule

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Child",
    "Context",
    "Dead",
    "Graph",
    "Job",
    "JobHandle",
    "JobType",
    "Pipeline",
    "Retry",
    "Schedule",
    "Snooze",
    "State",
    "Windlass",
    "WindlassError",
    "delays",
    "exponential",
    "fixed",
    "per",
    "phase",
    "rate",
    "unique",
]


def __getattr__(name: str) -> object:
    """What most programs never name is imported when it is first named."""
    if name == "Batch":
        from windlass.batch import Batch

        return Batch
    if name == "Graph":
        from windlass.graph import Graph

        return Graph
    if name == "Schedule":
        from windlass.scheduled import Schedule

        return Schedule
    raise AttributeError(f"module 'windlass' has no attribute {name!r}")

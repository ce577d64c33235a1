"""Windlass: durable background jobs for Python, on the database you already have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.app import Windlass
from windlass.declare.jobtype import JobType
from windlass.declare.pipeline_type import Pipeline, phase
from windlass.errors import WindlassError
from windlass.handler.children import Child
from windlass.handler.context import Context
from windlass.handler.sync_context import SyncContext
from windlass.handles.job import JobHandle
from windlass.model.job import Job
from windlass.model.outcome import Dead, Retry, Snooze
from windlass.model.state import State
from windlass.policy.limit import limit, rate
from windlass.policy.retry import delays, exponential, fixed
from windlass.policy.unique import unique

if TYPE_CHECKING:
    from windlass.handles.batch import Batch
    from windlass.handles.graph import Graph
    from windlass.handles.schedule import Schedule

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
    "SyncContext",
    "Windlass",
    "WindlassError",
    "delays",
    "exponential",
    "fixed",
    "limit",
    "phase",
    "rate",
    "unique",
]


def __getattr__(name: str) -> object:
    """Classes that most programs never name are imported when a program first names them."""
    if name == "Batch":
        from windlass.handles.batch import Batch

        return Batch
    if name == "Graph":
        from windlass.handles.graph import Graph

        return Graph
    if name == "Schedule":
        from windlass.handles.schedule import Schedule

        return Schedule
    raise AttributeError(f"module 'windlass' has no attribute {name!r}")

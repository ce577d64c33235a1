"""Windlass: durable background jobs for Python, on the database you already have."""

from __future__ import annotations

from windlass.app import Windlass
from windlass.context import Context
from windlass.errors import WindlassError
from windlass.handle import JobHandle
from windlass.job import Job
from windlass.jobtype import JobType
from windlass.outcome import Dead, Retry, Snooze
from windlass.policy.retry import delays, exponential, fixed
from windlass.state import State

__version__ = "0.1.0"

__all__ = [
    "Context",
    "Dead",
    "Job",
    "JobHandle",
    "JobType",
    "Retry",
    "Snooze",
    "State",
    "Windlass",
    "WindlassError",
    "delays",
    "exponential",
    "fixed",
]

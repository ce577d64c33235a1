"""Windlass: durable background jobs for Python, on the database you already have.

`help(windlass.Windlass)` is where to begin. Every error, row and event that a program meets can be imported from here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from windlass.app import Windlass
from windlass.clock import Duration
from windlass.declare.jobtype import JobType, TypedCall
from windlass.declare.pipeline_type import Pipeline, phase
from windlass.errors import (
    AdmissionError,
    BlockingCall,
    ChildrenFailed,
    ConfigError,
    DuplicateType,
    EnqueueError,
    FilterError,
    FlowError,
    IdempotencyConflict,
    InvalidInput,
    InvalidOption,
    JobCancelled,
    JobDead,
    JobNotFound,
    JobUnsuccessful,
    LeaseLost,
    ProgramError,
    RegistrationError,
    ResultTimeout,
    ScheduleError,
    ScheduleNotFound,
    SchemaMissing,
    SchemaOutdated,
    SchemaTooNew,
    SignalTimeout,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    TransitionRefused,
    UnknownLimit,
    UnknownType,
    UnusableConnection,
    ValueRefused,
    WindlassError,
)
from windlass.handler.children import Child
from windlass.handler.context import Context
from windlass.handler.sync_context import SyncContext
from windlass.handles.job import JobHandle
from windlass.model.job import Job
from windlass.model.outcome import Dead, Ending, Retry, Snooze
from windlass.model.state import State
from windlass.policy.limit import Limit, limit, rate
from windlass.policy.retry import RetryPolicy, delays, exponential, fixed
from windlass.policy.unique import unique

if TYPE_CHECKING:
    from windlass.config import Pace, Settings
    from windlass.handles.batch import Batch, BatchProgress
    from windlass.handles.graph import Graph
    from windlass.handles.schedule import Schedule
    from windlass.model.admission import BudgetRow, Gate, GateKind, GateState, LimitRow, TenantRow
    from windlass.model.job import Attempt, Failure
    from windlass.model.outcome import Ending
    from windlass.model.rows import (
        AuditRow,
        JobDetails,
        JobRow,
        LimitUse,
        Liveness,
        QueueRow,
        WaitKind,
        WaitReason,
        WorkerRow,
    )
    from windlass.model.schedule import CatchUp, Overlap, ScheduleRow, TickOutcome, TickRow
    from windlass.observe.events import (
        AttemptEnded,
        AttemptStarted,
        Event,
        JobChanged,
        JobsRescued,
        LeasesLost,
        WorkerStarted,
        WorkerStopped,
    )

__version__ = "0.1.0"

__all__ = [
    "AdmissionError",
    "Attempt",
    "AttemptEnded",
    "AttemptStarted",
    "AuditRow",
    "Batch",
    "BatchProgress",
    "BlockingCall",
    "BudgetRow",
    "CatchUp",
    "Child",
    "ChildrenFailed",
    "ConfigError",
    "Context",
    "Dead",
    "DuplicateType",
    "Duration",
    "Ending",
    "EnqueueError",
    "Event",
    "Failure",
    "FilterError",
    "FlowError",
    "Gate",
    "GateKind",
    "GateState",
    "Graph",
    "IdempotencyConflict",
    "InvalidInput",
    "InvalidOption",
    "Job",
    "JobCancelled",
    "JobChanged",
    "JobDead",
    "JobDetails",
    "JobHandle",
    "JobNotFound",
    "JobRow",
    "JobType",
    "JobUnsuccessful",
    "JobsRescued",
    "LeaseLost",
    "LeasesLost",
    "Limit",
    "LimitRow",
    "LimitUse",
    "Liveness",
    "Overlap",
    "Pace",
    "Pipeline",
    "ProgramError",
    "QueueRow",
    "RegistrationError",
    "ResultTimeout",
    "Retry",
    "RetryPolicy",
    "Schedule",
    "ScheduleError",
    "ScheduleNotFound",
    "ScheduleRow",
    "SchemaMissing",
    "SchemaOutdated",
    "SchemaTooNew",
    "Settings",
    "SignalTimeout",
    "Snooze",
    "State",
    "StoreBusy",
    "StoreCorrupt",
    "StoreError",
    "StoreRefused",
    "StoreUnavailable",
    "SyncContext",
    "TenantRow",
    "TickOutcome",
    "TickRow",
    "TransitionRefused",
    "TypedCall",
    "UnknownLimit",
    "UnknownType",
    "UnusableConnection",
    "ValueRefused",
    "WaitKind",
    "WaitReason",
    "Windlass",
    "WindlassError",
    "WorkerRow",
    "WorkerStarted",
    "WorkerStopped",
    "delays",
    "exponential",
    "fixed",
    "limit",
    "phase",
    "rate",
    "unique",
]

LAZY = {
    "windlass.config": "Pace Settings",
    "windlass.handles.batch": "Batch BatchProgress",
    "windlass.handles.graph": "Graph",
    "windlass.handles.schedule": "Schedule",
    "windlass.model.admission": "BudgetRow Gate GateKind GateState LimitRow TenantRow",
    "windlass.model.job": "Attempt Failure",
    "windlass.model.outcome": "Ending",
    "windlass.model.rows": "AuditRow JobDetails JobRow LimitUse Liveness QueueRow WaitKind WaitReason WorkerRow",
    "windlass.model.schedule": "CatchUp Overlap ScheduleRow TickOutcome TickRow",
    "windlass.observe.events": (
        "Event AttemptEnded JobChanged AttemptStarted JobsRescued LeasesLost WorkerStarted WorkerStopped"
    ),
}
"""Modules whose names most programs never use: they are imported when a program first names one."""


def __getattr__(name: str) -> object:
    for module, names in LAZY.items():
        if name in names.split():
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'windlass' has no attribute {name!r}")

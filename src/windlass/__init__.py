"""Windlass: durable background jobs for Python, on the database you already have.

`help(windlass.Windlass)` is where to begin. Every error, row and event that a program meets can be imported from here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from windlass.actor import acting_as
from windlass.app import Windlass
from windlass.clock import Duration
from windlass.declare.job_handler import JobHandler
from windlass.declare.jobtype import JobType, TypedCall
from windlass.declare.named_calls import NamedCall
from windlass.declare.pipeline_type import Pipeline, phase
from windlass.errors import (
    AccessDenied,
    AdmissionError,
    BlockingCall,
    BrokerError,
    BrokerRefused,
    BrokerUnavailable,
    ChildrenFailed,
    ConfigError,
    DuplicateType,
    EnqueueError,
    EnvelopeError,
    FetchError,
    FetchFailed,
    FetchRefused,
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
    ReadTimeout,
    RegistrationError,
    RequestRefused,
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
    TokenError,
    TokenExists,
    TokenNotFound,
    TokenRefused,
    TransitionRefused,
    UnknownLimit,
    UnknownType,
    UnusableConnection,
    ValueRefused,
    WindlassError,
    WorkersOutdated,
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
    from windlass.methods.bulk import BulkProgress, Chosen
    from windlass.model.admission import BudgetRow, Gate, GateKind, GateState, LimitRow, TenantRow
    from windlass.model.figures import DepthRow, FigureRow, PhaseRow
    from windlass.model.job import Attempt, Failure
    from windlass.model.job_types import TypeRow
    from windlass.model.outcome import Ending
    from windlass.model.processors import PoolRow, ProcessorRow, ProcessorState
    from windlass.model.reports.error_groups import ErrorGroup, ErrorShare
    from windlass.model.reports.health import Health, HealthFinding, HealthLevel, NextStep, QueueHealth, Trouble
    from windlass.model.reports.overview import (
        Deploy,
        DryCheck,
        Facets,
        Overview,
        OverviewFigure,
        OverviewStep,
        Suggestion,
    )
    from windlass.model.reports.story import (
        GraphNode,
        JobGraph,
        JobLink,
        JobStory,
        Life,
        LifeKind,
        LinkGroup,
        NextKind,
        Relation,
    )
    from windlass.model.rows import (
        AuditRow,
        DeadKind,
        DeadReport,
        DeadRow,
        DeadView,
        FoundJob,
        JobDetails,
        JobRow,
        JobState,
        LimitUse,
        Liveness,
        QueueRow,
        WaitKind,
        WaitReason,
        WorkerRow,
    )
    from windlass.model.schedule import CatchUp, Overlap, ScheduleRow, TickOutcome, TickRow
    from windlass.model.token import NewToken, Role, TokenRow
    from windlass.observe.events import (
        AttemptEnded,
        AttemptStarted,
        BrokerBack,
        BrokerLost,
        DeliveriesRefused,
        Event,
        HealthReported,
        JobAssigned,
        JobChanged,
        JobQueued,
        JobRefused,
        JobsClaimed,
        JobsReleased,
        JobsRescued,
        LeasesLost,
        OutboxPublished,
        PhaseHealth,
        ReleaseReason,
        UndeliveredFound,
        WorkerStarted,
        WorkerStopped,
    )
    from windlass.transport.protocol import JobDispatcher

__version__ = "0.1.0"

__all__ = [
    "AccessDenied",
    "AdmissionError",
    "Attempt",
    "AttemptEnded",
    "AttemptStarted",
    "AuditRow",
    "Batch",
    "BatchProgress",
    "BlockingCall",
    "BrokerBack",
    "BrokerError",
    "BrokerLost",
    "BrokerRefused",
    "BrokerUnavailable",
    "BudgetRow",
    "BulkProgress",
    "CatchUp",
    "Child",
    "ChildrenFailed",
    "Chosen",
    "ConfigError",
    "Context",
    "Dead",
    "DeadKind",
    "DeadReport",
    "DeadRow",
    "DeadView",
    "DeliveriesRefused",
    "Deploy",
    "DepthRow",
    "DryCheck",
    "DuplicateType",
    "Duration",
    "Ending",
    "EnqueueError",
    "EnvelopeError",
    "ErrorGroup",
    "ErrorShare",
    "Event",
    "Facets",
    "Failure",
    "FetchError",
    "FetchFailed",
    "FetchRefused",
    "FigureRow",
    "FilterError",
    "FlowError",
    "FoundJob",
    "Gate",
    "GateKind",
    "GateState",
    "Graph",
    "GraphNode",
    "Health",
    "HealthFinding",
    "HealthLevel",
    "HealthReported",
    "IdempotencyConflict",
    "InvalidInput",
    "InvalidOption",
    "Job",
    "JobAssigned",
    "JobCancelled",
    "JobChanged",
    "JobDead",
    "JobDetails",
    "JobDispatcher",
    "JobGraph",
    "JobHandle",
    "JobHandler",
    "JobLink",
    "JobNotFound",
    "JobQueued",
    "JobRefused",
    "JobRow",
    "JobState",
    "JobStory",
    "JobType",
    "JobUnsuccessful",
    "JobsClaimed",
    "JobsReleased",
    "JobsRescued",
    "LeaseLost",
    "LeasesLost",
    "Life",
    "LifeKind",
    "Limit",
    "LimitRow",
    "LimitUse",
    "LinkGroup",
    "Liveness",
    "NamedCall",
    "NewToken",
    "NextKind",
    "NextStep",
    "OutboxPublished",
    "Overlap",
    "Overview",
    "OverviewFigure",
    "OverviewStep",
    "Pace",
    "PhaseHealth",
    "PhaseRow",
    "Pipeline",
    "PoolRow",
    "ProcessorRow",
    "ProcessorState",
    "ProgramError",
    "QueueHealth",
    "QueueRow",
    "ReadTimeout",
    "RegistrationError",
    "Relation",
    "ReleaseReason",
    "RequestRefused",
    "ResultTimeout",
    "Retry",
    "RetryPolicy",
    "Role",
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
    "Suggestion",
    "SyncContext",
    "TenantRow",
    "TickOutcome",
    "TickRow",
    "TokenError",
    "TokenExists",
    "TokenNotFound",
    "TokenRefused",
    "TokenRow",
    "TransitionRefused",
    "Trouble",
    "TypeRow",
    "TypedCall",
    "UndeliveredFound",
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
    "WorkersOutdated",
    "acting_as",
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
    "windlass.methods.bulk": "BulkProgress Chosen",
    "windlass.handles.batch": "Batch BatchProgress",
    "windlass.handles.graph": "Graph",
    "windlass.handles.schedule": "Schedule",
    "windlass.model.admission": "BudgetRow Gate GateKind GateState LimitRow TenantRow",
    "windlass.model.reports.error_groups": "ErrorGroup ErrorShare",
    "windlass.model.figures": "DepthRow FigureRow PhaseRow",
    "windlass.model.job": "Attempt Failure",
    "windlass.model.job_types": "TypeRow",
    "windlass.model.outcome": "Ending",
    "windlass.model.processors": "PoolRow ProcessorRow ProcessorState",
    "windlass.model.reports.health": "Health HealthFinding HealthLevel NextStep QueueHealth Trouble",
    "windlass.model.reports.overview": "Deploy DryCheck Facets Overview OverviewFigure OverviewStep Suggestion",
    "windlass.model.rows": (
        "AuditRow DeadKind DeadView DeadReport DeadRow FoundJob JobDetails JobRow JobState LimitUse Liveness "
        "QueueRow WaitKind WaitReason WorkerRow"
    ),
    "windlass.model.schedule": "CatchUp Overlap ScheduleRow TickOutcome TickRow",
    "windlass.model.reports.story": "GraphNode JobGraph JobLink JobStory Life LifeKind LinkGroup NextKind Relation",
    "windlass.model.token": "NewToken Role TokenRow",
    "windlass.transport.protocol": "JobDispatcher",
    "windlass.observe.events": (
        "Event AttemptEnded JobChanged AttemptStarted JobsRescued LeasesLost WorkerStarted WorkerStopped "
        "BrokerBack BrokerLost DeliveriesRefused OutboxPublished UndeliveredFound "
        "JobAssigned JobQueued JobRefused JobsClaimed JobsReleased PhaseHealth ReleaseReason HealthReported"
    ),
}
"""Modules whose names most programs never use: they are imported when a program first names one."""


def __getattr__(name: str) -> object:
    for module, names in LAZY.items():
        if name in names.split():
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'windlass' has no attribute {name!r}")

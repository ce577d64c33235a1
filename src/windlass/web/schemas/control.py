"""The bodies of requests and answers about gates, limits, budgets and tenants."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from windlass.methods.admin import LEAST_WEIGHT, MOST_CENTS, MOST_WEIGHT, SHORTEST_WINDOW
from windlass.model.admission import GateKind, GateState
from windlass.policy.limit import LONGEST_HOLD
from windlass.web.schemas.base import (
    LONGEST_SPAN,
    Answer,
    Body,
    Name,
    Reason,
)


class GateDocument(Answer):
    """A gate that an operator has changed."""

    kind: GateKind
    name: str
    state: GateState
    reason: str | None
    actor: str | None
    since: datetime


class NamedGate(Body):
    """The gate of one queue, type or tenant."""

    kind: Literal["queue", "type", "tenant"]
    name: Name

    def arguments(self) -> dict[str, Any]:
        return {self.kind: self.name}


class EveryGate(Body):
    """The gate of everything."""

    kind: Literal["all"]

    def arguments(self) -> dict[str, Any]:
        return {"all": True}


class Pause(Body):
    """With `claimed` "finish", jobs that a worker has claimed still run."""

    reason: Reason | None = None
    claimed: Literal["return", "finish"] = "return"


class NamedPause(NamedGate, Pause):
    """Pause one queue, type or tenant."""


class EveryPause(EveryGate, Pause):
    """Pause everything."""


GateBody = Annotated[NamedGate | EveryGate, Field(discriminator="kind")]
PauseBody = Annotated[NamedPause | EveryPause, Field(discriminator="kind")]


class Gates(Answer):
    """The gates that an operator has changed."""

    gates: list[GateDocument]


class LimitDocument(Answer):
    """A key of a limit or rate in use."""

    key: str
    name: str
    most: int | None
    used: int
    period: float | None
    burst: int | None
    waiting: int
    free_in: float
    held: float


class Limits(Answer):
    """The keys in use, those with most waiting jobs first; `total` counts those that are not listed, too."""

    limits: list[LimitDocument]
    total: int


class LimitHolder(Answer):
    """A running job with a slot or token of a key."""

    id: UUID
    type: str
    tenant: str
    queue: str
    worker: UUID | None
    worker_name: str | None
    since: datetime | None


class LimitWaiter(Answer):
    """A job that is parked on a key."""

    id: UUID
    type: str
    tenant: str
    queue: str
    priority: int
    run_at: datetime


class LimitUseDocument(LimitDocument):
    """One key, the jobs that hold it, and those that wait."""

    holders: list[LimitHolder]
    waiters: list[LimitWaiter]


class KeyBody(Body):
    """A key of a limit or rate."""

    key: str = Field(min_length=1, max_length=250, pattern=r"^[^\x00]*$")


class HoldBody(KeyBody):
    """Give no slot and no token of a key for a time."""

    seconds: float = Field(gt=0, le=LONGEST_HOLD, strict=True)


class HeldKey(Answer):
    """For how many seconds the key is held back now."""

    key: str
    held: float


class BudgetDocument(Answer):
    """What a tenant or a queue may cost, and has cost."""

    kind: Literal["tenant", "queue"]
    name: str
    cents: int
    seconds: float | None
    spent: int
    left: int
    open: bool
    until: datetime


class Budgets(Answer):
    """All budgets."""

    budgets: list[BudgetDocument]


Window = Annotated[float, Field(ge=SHORTEST_WINDOW, le=LONGEST_SPAN, strict=True, description="seconds")]


class BudgetBody(Body):
    """Set a budget: of a tenant or of a queue, per hour, day, week, month or a number of seconds."""

    kind: Literal["tenant", "queue"]
    name: Name
    cents: int = Field(ge=0, le=MOST_CENTS, strict=True)
    per: Literal["hour", "day", "week", "month"] | Window


class TenantDocument(Answer):
    """A tenant. A number above `counted` means: there are more than `counted`."""

    tenant: str
    weight: float
    queued: int
    running: int
    parked: int
    lag: float | None
    cents: int
    due: int
    counted: int


class Tenants(Answer):
    """All tenants with a weight, with jobs, or with costs in the last 24 hours."""

    tenants: list[TenantDocument]


class WeightBody(Body):
    """The weight of a tenant."""

    tenant: Name
    weight: float = Field(ge=LEAST_WEIGHT, le=MOST_WEIGHT, strict=True)

"""The routes of gates, limits, budgets and tenants."""

from __future__ import annotations

from typing import Any, Literal

from starlette.responses import Response

from windlass.web.answers import answer
from windlass.web.routes.parameters import Key, MaybeName, Name
from windlass.web.routing import WITH_BODY, Entered, make_routes, problems
from windlass.web.schemas import control as schemas
from windlass.web.schemas.base import Changes

BODY = problems(*WITH_BODY)
MISSING = problems(404, *WITH_BODY)

control_router = make_routes("control")


@control_router.get("/gates", response_model=schemas.Gates, summary="List gates")
async def read_gates(visit: Entered) -> Response:
    """The gates that an operator has changed."""
    return answer(await visit.service.gates(visit.caller))


@control_router.post("/gates/pause", response_model=Changes, responses=BODY, summary="Pause")
async def pause_gate(body: schemas.PauseBody, visit: Entered) -> Response:
    """Workers claim nothing behind a paused gate: a queue's, a type's, a tenant's, or that of everything."""
    gate = {**body.arguments(), "reason": body.reason, "claimed": body.claimed}
    return answer(await visit.service.pause(visit.caller, **gate))


@control_router.post("/gates/resume", response_model=Changes, responses=BODY, summary="Resume")
async def resume_gate(body: schemas.GateBody, visit: Entered) -> Response:
    """Opens a gate again."""
    return answer(await visit.service.resume(visit.caller, **body.arguments()))


@control_router.get("/limits", response_model=schemas.Limits, summary="List limits")
async def read_limits(visit: Entered, name: MaybeName = None) -> Response:
    """The keys of limits and rates in use; with `name`, those of one limit."""
    return answer(await visit.service.limits(visit.caller, name))


@control_router.get(
    "/limits/use", response_model=schemas.LimitUseDocument, responses=problems(404), summary="Read who uses a limit"
)
async def read_limit_use(visit: Entered, key: Key) -> Response:
    """The jobs that hold a slot or token of a key, and those that wait for one."""
    return answer(await visit.service.limit_use(visit.caller, key))


@control_router.post("/limits/hold", response_model=schemas.HeldKey, responses=MISSING, summary="Hold a limit back")
async def hold_limit(body: schemas.HoldBody, visit: Entered) -> Response:
    """No slot or token of the key is given for a time, as after a 429."""
    return answer(await visit.service.hold(visit.caller, body.key, body.seconds))


@control_router.post("/limits/release", response_model=Changes, responses=MISSING, summary="Release a limit")
async def release_limit(body: schemas.KeyBody, visit: Entered) -> Response:
    """Ends a hold before its time."""
    return answer(await visit.service.release(visit.caller, body.key))


@control_router.get("/budgets", response_model=schemas.Budgets, summary="List budgets")
async def read_budgets(visit: Entered) -> Response:
    """What tenants and queues may cost, and have cost."""
    return answer(await visit.service.budgets(visit.caller))


@control_router.put("/budgets", response_model=Changes, responses=BODY, summary="Set a budget")
async def set_budget(body: schemas.BudgetBody, visit: Entered) -> Response:
    """Of a tenant or of a queue."""
    budget: dict[str, Any] = {body.kind: body.name, "cents": body.cents, "per": body.per}
    return answer(await visit.service.set_budget(visit.caller, **budget))


@control_router.delete("/budgets", response_model=Changes, summary="Remove a budget")
async def drop_budget(visit: Entered, kind: Literal["tenant", "queue"], name: Name) -> Response:
    """Of a tenant or of a queue."""
    spender: dict[str, Any] = {kind: name}
    return answer(await visit.service.drop_budget(visit.caller, **spender))


@control_router.get("/tenants", response_model=schemas.Tenants, summary="List tenants")
async def read_tenants(visit: Entered) -> Response:
    """The tenants with a weight, with jobs, or with costs in the last 24 hours."""
    return answer(await visit.service.tenants(visit.caller))


@control_router.put("/tenants/weight", response_model=Changes, responses=BODY, summary="Set a tenant's weight")
async def set_weight(body: schemas.WeightBody, visit: Entered) -> Response:
    """A tenant of weight 2 gets twice the share of one of weight 1 where both have jobs waiting."""
    return answer(await visit.service.set_weight(visit.caller, body.tenant, body.weight))

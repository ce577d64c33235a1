"""What the API does beside jobs: figures, gates, limits, budgets, tenants, schedules, the audit, types and tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import UUID

import msgspec

from windlass.clock import seconds
from windlass.documents import (
    Document,
    audit_document,
    budget_document,
    gate_document,
    limit_document,
    limit_use_document,
    queue_document,
    schedule_document,
    tenant_document,
    tick_document,
    worker_document,
)
from windlass.methods.reads import LARGEST_PAGE
from windlass.model.audit import DEAD
from windlass.model.figures import BOUNDS
from windlass.model.rows import COUNTED
from windlass.model.token import Role
from windlass.payload.redact import HIDDEN
from windlass.policy.cron import list_fires
from windlass.policy.failure import PERMANENT
from windlass.policy.redaction import Redaction
from windlass.web.caller import Caller, needs
from windlass.web.live.feed import Source
from windlass.web.service.scrapes import Scrapes

if TYPE_CHECKING:
    from windlass.app import Windlass
    from windlass.model.job import Job
    from windlass.model.rows import AuditRow
    from windlass.model.schedule import ScheduleRow

MOST_LIMITS = 500  # keys in one answer
MOST_STEPS = 1_000  # of one answer about figures
LONGEST_DEPTHS = 6 * 3600.0  # seconds back: there is a sample every 10 s
SHOWN_OF_TYPES = (
    *("name", "queue", "priority", "max_attempts", "description"),
    *("parameters", "local_only", "workers", "declared_here"),
)
DRAWN_TICKS = 96  # of 24 hours: one per 15 minutes
DAY = timedelta(days=1)
FIGURES_EVERY = 5.0  # seconds between two reads of the live figures


class SystemService:
    """The operations that concern no single job."""

    def __init__(self, app: Windlass) -> None:
        self._app = app
        self._redaction = Redaction(app.settings.redact)
        self.scrapes = Scrapes(app)
        self.after_revoke: Callable[[], None] = lambda: None  # tells the doors of this server

    # Figures

    @needs(Role.VIEWER)
    async def counts(self, caller: Caller) -> Document:
        return {"counts": await self._app.acounts(), "counted": COUNTED}

    @needs(Role.VIEWER)
    async def queues(self, caller: Caller) -> Document:
        return {"queues": [queue_document(row) for row in await self._app.aqueues(idle=True)]}

    @needs(Role.VIEWER)
    async def figures(self, caller: Caller, since: str, step: str, queue: str | None) -> Document:
        shortest = seconds(since) / MOST_STEPS
        rows = await self._app.afigures(since=since, step=max(seconds(step), shortest), queue=queue)
        return {"bounds": BOUNDS, "figures": [_figure_document(row) for row in rows]}

    @needs(Role.VIEWER)
    async def metrics(self, caller: Caller, accept: str) -> tuple[str, bytes]:
        return await self.scrapes.write(accept)

    @needs(Role.VIEWER)
    async def depths(self, caller: Caller, since: str, queue: str | None) -> Document:
        rows = await self._app.adepths(since=min(seconds(since), LONGEST_DEPTHS), queue=queue)
        return {"depths": [msgspec.structs.asdict(row) for row in rows]}

    @needs(Role.VIEWER)
    async def live_overview(self, caller: Caller) -> Source:
        """Counts, queues, workers and gates, each as a row."""

        async def read() -> dict[str, object]:
            counts, queues, workers, gates = await asyncio.gather(
                self._app.acounts(), self._app.aqueues(idle=True), self._app.aworkers(), self._app.agates()
            )
            rows: dict[str, object] = {"counts": counts}
            rows |= {f"queue:{row.queue}": queue_document(row) for row in queues}
            rows |= {f"worker:{row.id}": worker_document(row) for row in workers}
            rows |= {f"gate:{gate.kind}:{gate.name}": gate_document(gate) for gate in gates}
            return rows

        return Source("overview", "overview", read)

    @needs(Role.VIEWER)
    async def live_figures(self, caller: Caller) -> Source:
        """The figures of the last hour, a row per minute, queue and phase."""

        async def read() -> dict[str, object]:
            rows = await self._app.afigures(since="1h", step="1m")
            return {f"{row.at:%H:%M}:{row.queue}:{row.phase}": _figure_document(row) for row in rows}

        return Source("figures", "figures", read, FIGURES_EVERY)

    @needs(Role.VIEWER)
    async def workers(self, caller: Caller) -> Document:
        return {"workers": [worker_document(row) for row in await self._app.aworkers()]}

    @needs(Role.VIEWER, tenants=True)
    async def types(self, caller: Caller) -> Document:
        rows = await self._app.ajob_types()
        return {"types": [{name: getattr(row, name) for name in SHOWN_OF_TYPES} for row in rows]}

    @needs(Role.VIEWER, tenants=True)
    async def audit(
        self,
        caller: Caller,
        *,
        job: UUID | None,
        action: str | None,
        actor: str | None,
        tenant: str | None,
        count: int,
        below: int | None,
    ) -> Document:
        scope = caller.tenant or tenant
        rows = await self._app.aaudit(job=job, action=action, actor=actor, tenant=scope, count=count, below=below)
        dead = [row.job for row in rows if row.job is not None and row.action == DEAD]
        known = await self._app._client.aask(lambda store: store.find_many(dead)) if dead else {}
        entries = await asyncio.to_thread(lambda: [self._entry(row, known) for row in rows])
        return {"audit": entries, "next": rows[-1].number if len(rows) == count else None}

    def _entry(self, row: AuditRow, known: Mapping[UUID, Job]) -> Document:
        """The reason of a dead job is the handler's own text. If the job is gone, its secrets are not known."""
        entry: Document = self._redaction.value(msgspec.to_builtins(audit_document(row)))
        if row.action != DEAD or row.job is None or row.reason == PERMANENT:
            return entry
        return self._without_echoes(known[row.job], entry) if row.job in known else {**entry, "reason": HIDDEN}

    def _without_echoes(self, job: Job, about: Document) -> Document:
        """A document about a job without the hidden values of that job, which its texts may repeat."""
        hidden: Document = self._redaction.about(job.document(), about)
        return hidden

    # Gates

    @needs(Role.VIEWER)
    async def gates(self, caller: Caller) -> Document:
        return {"gates": [gate_document(gate) for gate in await self._app.agates()]}

    @needs(Role.OPERATOR)
    async def pause(self, caller: Caller, /, **gate: Any) -> Document:
        return {"changed": await self._app.apause(**gate)}

    @needs(Role.OPERATOR)
    async def resume(self, caller: Caller, /, **gate: Any) -> Document:
        return {"changed": await self._app.aresume(**gate)}

    # Limits

    @needs(Role.VIEWER)
    async def limits(self, caller: Caller, name: str | None) -> Document:
        rows = await self._app.alimits(name)
        return {"limits": [limit_document(row) for row in rows[:MOST_LIMITS]], "total": len(rows)}

    @needs(Role.VIEWER)
    async def limit_use(self, caller: Caller, key: str) -> Document:
        return limit_use_document(await self._app.alimit_use(key))

    @needs(Role.OPERATOR)
    async def hold(self, caller: Caller, key: str, span: str | float) -> Document:
        return {"key": key, "held": await self._app.ahold_back(key, span)}

    @needs(Role.OPERATOR)
    async def release(self, caller: Caller, key: str) -> Document:
        return {"changed": await self._app.arelease(key)}

    # Budgets and tenants

    @needs(Role.VIEWER, tenants=True)
    async def budgets(self, caller: Caller) -> Document:
        rows = await self._app.abudgets()
        own = [row for row in rows if caller.tenant is None or (row.kind, row.name) == ("tenant", caller.tenant)]
        return {"budgets": [budget_document(row) for row in own]}

    @needs(Role.ADMIN)
    async def set_budget(self, caller: Caller, /, **budget: Any) -> Document:
        await self._app.aset_budget(**budget)
        return {"changed": True}

    @needs(Role.ADMIN)
    async def drop_budget(self, caller: Caller, /, **spender: Any) -> Document:
        return {"changed": await self._app.adrop_budget(**spender)}

    @needs(Role.VIEWER, tenants=True)
    async def tenants(self, caller: Caller) -> Document:
        rows = [row for row in await self._app.atenants() if caller.tenant in (None, row.name)]
        return {"tenants": [tenant_document(row) for row in rows]}

    @needs(Role.ADMIN)
    async def set_weight(self, caller: Caller, tenant: str, weight: float) -> Document:
        await self._app.aset_weight(tenant, weight)
        return {"changed": True}

    # Schedules

    @needs(Role.VIEWER)
    async def schedules(self, caller: Caller, *, ticks: bool = False) -> Document:
        """All schedules; with `ticks`, each with those of the last and the next 24 hours."""
        rows = await self._app.aschedules()
        documents = [schedule_document(row) | (await self._day(row) if ticks else {}) for row in rows]
        return {"schedules": self._redaction.value(_plain(documents))}

    async def _day(self, row: ScheduleRow) -> Document:
        """The ticks of 24 hours back and on. Most schedules have a few: more are read only where those are not all."""
        now = datetime.now(UTC)
        past = await self._app.aticks(row.name, count=DRAWN_TICKS + 1)
        if len(past) > DRAWN_TICKS and past[-1].at > now - DAY:
            past = await self._app.aticks(row.name, count=LARGEST_PAGE)
        coming = [] if row.paused else list_fires(row, DRAWN_TICKS + 1)
        if len(coming) > DRAWN_TICKS and coming[-1] < now + DAY:
            coming = list_fires(row, DAY // timedelta(minutes=1))
        ticks = thin([(tick.at, tick.outcome.value) for tick in past if tick.at > now - DAY])
        return {"ticks": ticks, "coming": [at for at, _ in thin([(at, "") for at in coming if at < now + DAY])]}

    @needs(Role.VIEWER)
    async def ticks(self, caller: Caller, name: str, count: int) -> Document:
        return {"ticks": [tick_document(tick) for tick in await self._app.aticks(name, count=count)]}

    @needs(Role.OPERATOR)
    async def pause_schedule(self, caller: Caller, name: str, reason: str | None) -> Document:
        return {"changed": await (await self._app.afind_schedule(name)).apause(reason)}

    @needs(Role.OPERATOR)
    async def resume_schedule(self, caller: Caller, name: str) -> Document:
        return {"changed": await (await self._app.afind_schedule(name)).aresume()}

    @needs(Role.OPERATOR)
    async def edit_schedule(self, caller: Caller, name: str, change: dict[str, Any]) -> Document:
        return {"changed": await (await self._app.afind_schedule(name)).aedit(**change)}

    @needs(Role.OPERATOR)
    async def reset_schedule(self, caller: Caller, name: str) -> Document:
        return {"changed": await (await self._app.afind_schedule(name)).areset()}

    @needs(Role.OPERATOR)
    async def fire_schedule(self, caller: Caller, name: str) -> Document:
        job = await (await self._app.afind_schedule(name)).afire()
        return {"id": job.id, "existing": job.existing}

    @needs(Role.ADMIN)
    async def forget_schedule(self, caller: Caller, name: str, *, force: bool) -> Document:
        await (await self._app.afind_schedule(name)).aforget(force=force)
        return {"changed": True}

    # Session and tokens

    @needs(Role.VIEWER, tenants=True)
    async def session(self, caller: Caller) -> Document:
        location = urlsplit(self._app.settings.url)
        shown = f"{location.scheme} · {location.path.rsplit('/', 1)[-1]}"
        store = shown if caller.tenant is None else ""  # the name of a database is the operator's
        who = {"name": caller.name, "role": caller.role, "tenant": caller.tenant}
        return {**who, "store": store, "now": datetime.now(UTC)}

    @needs(Role.ADMIN)
    async def tokens(self, caller: Caller) -> Document:
        return {"tokens": [row.document() for row in await self._app.atokens()]}

    @needs(Role.ADMIN)
    async def create_token(self, caller: Caller, /, name: str, **options: Any) -> Document:
        made = await self._app.acreate_token(name, **options)
        return {**made.token.document(), "secret": made.secret}

    @needs(Role.ADMIN)
    async def revoke_token(self, caller: Caller, token: str) -> Document:
        revoked = await self._app.arevoke_token(token)
        self.after_revoke()
        return revoked.document()


def thin(ticks: list[tuple[datetime, str]]) -> list[tuple[datetime, str]]:
    """Up to one tick per 15 minutes all of them. Of more, one per hour is left: a missed or skipped one if there is."""
    if len(ticks) <= DRAWN_TICKS:
        return ticks
    hours: dict[datetime, tuple[datetime, str]] = {}
    for tick in sorted(ticks, key=lambda tick: tick[1] in ("missed", "skipped")):
        hours[tick[0].replace(minute=0, second=0, microsecond=0)] = tick
    return list(hours.values())


def _figure_document(row: Any) -> Document:
    quantiles = {name: getattr(row, name) for name in ("run_p50", "run_p95", "wait_p50", "wait_p95")}
    return {**msgspec.structs.asdict(row), **quantiles}


def _plain(value: object) -> Any:
    """Decoded JSON of rows that hold JSON texts."""
    return msgspec.json.decode(msgspec.json.encode(value))

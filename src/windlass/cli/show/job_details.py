"""What stands around a job: the jobs it knows by name, what it waits for and remembers, and what the audit says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.cli.commands.audit import action_style, audit_document
from windlass.cli.commands.budgets import is_spent
from windlass.cli.commands.gates import describe_gate
from windlass.cli.commands.limits import describe_room, describe_rule, describe_use
from windlass.cli.show.job_json import UNREADABLE
from windlass.cli.show.output import format_span, print_text, to_local
from windlass.model.admission import GateState, LimitRow
from windlass.model.flow import Consequences, Linked, Recollection, Waiting
from windlass.model.job import Job
from windlass.model.state import State

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.store.protocol import AuditRow, Store

SHOWN = 20  # children, and rows of the audit
INDENT = "  "


class JobDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Read once, beside the job itself."""

    links: Sequence[Linked]
    others: frozenset[UUID]  # of the links that are shown, those it did not create
    memory: Recollection
    audit: Sequence[AuditRow]  # newest first, one more than is shown
    waiting: Waiting | None
    full: LimitRow | None = None  # the limit or rate that it is parked on
    closed: Sequence[str] = ()  # what else keeps it from starting, in words


async def read_details(store: Store, job: Job) -> JobDetails:
    links = await store.links(job.id)
    known = await store.find_many([link.id for link in links[:SHOWN]]) if links else {}
    return JobDetails(
        links=links,
        others=frozenset(id for id, other in known.items() if other.parent != job.id),
        memory=await store.recall(job.id),
        audit=await store.audit(job=job.id, page=SHOWN + 1),
        waiting=await store.waiting(job.id) if job.status is State.WAITING else None,
        full=await _read_full_limit(store, job),
        closed=await _read_closures(store, job) if job.status in (State.QUEUED, State.FAILED) else (),
    )


async def _read_full_limit(store: Store, job: Job) -> LimitRow | None:
    if job.parked_on is None:
        return None
    return next((row for row in await store.limits(job.parked_on) if row.key == job.parked_on), None)


async def _read_closures(store: Store, job: Job) -> list[str]:
    """Gates and budgets that this job does not get through now."""
    mine = {("all", ""), ("queue", job.queue), ("type", job.type), ("tenant", job.tenant)}
    reasons = []
    for gate in await store.gates():
        if gate.state is not GateState.OPEN and (gate.kind, gate.name) in mine:
            by, why = f" by {gate.actor}" if gate.actor else "", f": {gate.reason}" if gate.reason else ""
            reasons.append(f"{describe_gate(gate)} is {gate.state}{by}{why}")
    for row in await store.budgets():
        if is_spent(row) and (row.kind, row.name) in mine:
            reasons.append(f"the budget of {row.kind} {row.name} is spent, until {to_local(row.until):%Y-%m-%d %H:%M}")
    return reasons


# For a program


def details_document(details: JobDetails) -> dict[str, Any]:
    """What `jobs show --json` adds to a job."""
    waiting = details.waiting
    return {
        "waits": None
        if waiting is None
        else {name: getattr(waiting, name) for name in ("need", "pending", "succeeded", "signal", "wake_at")},
        "links": [{"name": link.name.strip(), "id": link.id, "state": link.status} for link in details.links],
        "steps": list_steps(details.memory),
        "signals": sorted(details.memory.signals),
        "audit": [audit_document(row) for row in details.audit[:SHOWN]],
    }


def list_steps(memory: Recollection) -> list[str]:
    """The names that the program gave to steps, sleeps and signals with a time limit; Windlass's own have a space."""
    return sorted(name for name in memory.steps if name == name.strip() and "/ " not in name)


# For a person


def describe_wait(waiting: Waiting | None, now: datetime) -> str:
    """`for the signal approved, until 14:00:00 (in 59m)`; empty when nobody knows."""
    if waiting is None:
        return ""
    parts: list[str] = []
    if waiting.need or waiting.pending:
        parts.append(f"for jobs: {waiting.succeeded:,} of {waiting.need:,} succeeded, {waiting.pending:,} to come")
    if waiting.signal is not None:
        parts.append(f"for the signal {waiting.signal}")
    if waiting.wake_at is not None:
        left = (waiting.wake_at - now).total_seconds()
        when = f"in {format_span(left)}" if left > 0 else f"{format_span(-left)} ago"
        parts.append(f"until {to_local(waiting.wake_at):%Y-%m-%d %H:%M:%S} ({when})")
    return ", ".join(parts)


def describe_park(job: Job, details: JobDetails) -> str:
    """`for limit domain:example.org (2 of 2 in use)`; empty when it is not parked."""
    if job.parked_on is None:
        return ""
    if details.full is None:
        return f"for {job.parked_on}"
    row = details.full
    kind = "limit" if row.period is None else "rate"
    if row.held > 0:
        how = f"everybody holds back for {format_span(row.held)} more"
    elif row.period is None:
        how = f"{describe_use(row)} in use"
    else:
        how = f"{describe_rule(row)}, a token is there {describe_room(row)}"
    return f"for {kind} {row.key} ({how})"


def list_details(job: Job, details: JobDetails) -> Iterator[tuple[str, str]]:
    """What there is to say of this job and no other."""
    if job.limits:
        yield "limits", ", ".join(job.limits)
    for closed in details.closed:
        yield "held up", closed
    steps = list_steps(details.memory)
    if steps:
        yield "steps", ", ".join(steps)
    if details.memory.signals:
        yield "signals", ", ".join(sorted(details.memory.signals))
    if job.consequences is not None:
        try:
            consequences = msgspec.json.decode(job.consequences, type=Consequences)
        except (msgspec.MsgspecError, ValueError):
            yield "consequences", f"{UNREADABLE}: {job.consequences}"
            return
        for moment, consequence in consequences.items():
            yield f"on {moment}", consequence.type


def print_links(job: Job, details: JobDetails) -> None:
    """The jobs it knows by name: its children, and those it depends on."""
    if not details.links:
        return
    shown, hidden = details.links[:SHOWN], len(details.links) - SHOWN
    states = Counter(_state(link) for link in details.links)
    reasons = ", ".join(f"{count:,} {state}" for state, count in states.most_common())
    print_text(f"\n{'Jobs it knows' if details.others else 'Children'}  ({reasons})", style="bold")
    width = max(len(link.name.strip()) for link in shown)
    for link in shown:
        foreign = "  not its child" if link.id in details.others else ""
        print_text(f"{INDENT}{link.name.strip():<{width}}  {link.id}  {_state(link)}{foreign}", style=_style(link))
    if hidden > 0:
        print_text(f"{INDENT}… {hidden:,} more: windlass jobs list parent:{job.id}", style="dim")


def _state(link: Linked) -> str:
    return "gone" if link.status is None else link.status.value


def _style(link: Linked) -> str | None:
    from windlass.cli.show.live_log import COLOURS

    return None if link.status is None else COLOURS.get(link.status)


def print_audit(job: Job, details: JobDetails) -> None:
    """What the audit says, newest first."""
    if not details.audit:
        return
    print_text("\nAudit", style="bold")
    for row in details.audit[:SHOWN]:
        by = f" by {row.actor}" if row.actor else ""
        why = f": {row.reason}" if row.reason else ""
        print_text(
            f"{INDENT}{to_local(row.at):%Y-%m-%d %H:%M:%S}  {row.action}{by}{why}",
            style=action_style(row.action) or None,
        )
    if len(details.audit) > SHOWN:
        print_text(f"{INDENT}… more: windlass audit --job {job.id}", style="dim")

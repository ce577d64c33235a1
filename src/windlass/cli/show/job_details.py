"""What `jobs show` reads beside a job: its links, steps and signals, what it waits for, and its rows of the audit."""

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
from windlass.cli.show.output import format_origin, format_span, print_text, to_local
from windlass.model.admission import GateState, LimitRow
from windlass.model.flow import FollowUps, Linked, Recollection, Waiting
from windlass.model.job import Job
from windlass.model.state import State

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.store.protocol import AuditRow, Store

SHOWN = 20  # children, and rows of the audit
INDENT = "  "


class JobDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What the store holds about a job beside its own row."""

    links: Sequence[Linked]
    others: frozenset[UUID]  # of the links that are shown, the jobs that this job did not create
    memory: Recollection
    audit: Sequence[AuditRow]  # newest first, one row more than is shown
    waiting: Waiting | None
    full: LimitRow | None = None  # the limit or rate that the job is parked on
    closed: Sequence[str] = ()  # the closed gates and spent budgets that keep the job from starting


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
    """The closed gates and spent budgets that keep this job from starting, one sentence each."""
    mine = {("all", ""), ("queue", job.queue), ("type", job.type), ("tenant", job.tenant)}
    reasons = []
    for gate in await store.gates():
        if gate.state is not GateState.OPEN and (gate.kind, gate.name) in mine:
            reasons.append(f"{describe_gate(gate)} is {gate.state}{format_origin(gate.actor, gate.reason)}")
    for row in await store.budgets():
        if is_spent(row) and (row.kind, row.name) in mine:
            reasons.append(f"the budget of {row.kind} {row.name} is spent, until {to_local(row.until):%Y-%m-%d %H:%M}")
    return reasons


# JSON


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
    """The program's names of steps, sleeps and signals with a timeout; the names that Windlass gives have a space."""
    return sorted(name for name in memory.steps if name == name.strip() and "/ " not in name)


# Text


def describe_wait(waiting: Waiting | None, now: datetime) -> str:
    """`for the signal approved, until 14:00:00 (in 59m)`; empty where the job does not wait."""
    if waiting is None:
        return ""
    parts: list[str] = []
    if waiting.need or waiting.pending:
        parts.append(f"for jobs: {waiting.succeeded:,} of {waiting.need:,} needed, {waiting.pending:,} to come")
    if waiting.signal is not None:
        parts.append(f"for the signal {waiting.signal}")
    if waiting.wake_at is not None:
        left = (waiting.wake_at - now).total_seconds()
        when = f"in {format_span(left)}" if left > 0 else f"{format_span(-left)} ago"
        parts.append(f"until {to_local(waiting.wake_at):%Y-%m-%d %H:%M:%S} ({when})")
    return ", ".join(parts)


def describe_park(job: Job, details: JobDetails) -> str:
    """`for limit domain:example.org (2 of 2 in use)`; empty where the job is not parked."""
    if job.parked_on is None:
        return ""
    if details.full is None:
        return f"for {job.parked_on}"
    row = details.full
    kind = "limit" if row.period is None else "rate"
    if row.held > 0:
        how = f"held back for {format_span(row.held)} more"
    elif row.period is None:
        how = f"{describe_use(row)} in use"
    else:
        how = f"{describe_rule(row)}, next token {describe_room(row)}"
    return f"for {kind} {row.key} ({how})"


def list_details(job: Job, details: JobDetails) -> Iterator[tuple[str, str]]:
    """Names and values of what the store holds beside the job's own row."""
    if job.limits:
        yield "limits", ", ".join(job.limits)
    for closed in details.closed:
        yield "held up", closed
    steps = list_steps(details.memory)
    if steps:
        yield "steps", ", ".join(steps)
    if details.memory.signals:
        yield "signals", ", ".join(sorted(details.memory.signals))
    if job.follow_ups is not None:
        try:
            follow_ups = msgspec.json.decode(job.follow_ups, type=FollowUps)
        except (msgspec.MsgspecError, ValueError):
            yield "follow_ups", f"{UNREADABLE}: {job.follow_ups}"
            return
        for moment, follow_up in follow_ups.items():
            yield f"on {moment}", follow_up.type


def print_links(job: Job, details: JobDetails) -> None:
    """Print the jobs that this job has links to: its children, and the jobs that it depends on."""
    if not details.links:
        return
    shown, hidden = details.links[:SHOWN], len(details.links) - SHOWN
    states = Counter(_state(link) for link in details.links)
    reasons = ", ".join(f"{count:,} {state}" for state, count in states.most_common())
    print_text(f"\n{'Linked jobs' if details.others else 'Children'}  ({reasons})", style="bold")
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
    """Print the job's rows of the audit, newest first."""
    if not details.audit:
        return
    print_text("\nAudit", style="bold")
    for row in details.audit[:SHOWN]:
        print_text(
            f"{INDENT}{to_local(row.at):%Y-%m-%d %H:%M:%S}  {row.action}{format_origin(row.actor, row.reason)}",
            style=action_style(row.action) or None,
        )
    if len(details.audit) > SHOWN:
        print_text(f"{INDENT}… more: windlass audit --job {job.id}", style="dim")

"""What `jobs show` prints beside a job: its links, steps and signals, why it waits, and its rows of the audit."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from windlass.cli.commands.audit import action_style
from windlass.cli.show.output import format_origin, print_text
from windlass.clock import to_local
from windlass.documents import AUDIT_SHOWN
from windlass.model.flow import FollowUps, Linked
from windlass.model.job import UNREADABLE, Job
from windlass.model.rows import COUNTED, JobDetails
from windlass.model.state import State

SHOWN = AUDIT_SHOWN  # children, and rows of the audit
INDENT = "  "


# JSON


# Text


def list_details(job: Job, details: JobDetails) -> Iterator[tuple[str, str]]:
    """Names and values of what the store holds beside the job's own row."""
    if job.limits:
        yield "limits", ", ".join(job.limits)
    for reason in details.reasons[1:]:  # the first one stands above all
        yield "held up", reason.text
    if details.steps:
        yield "steps", ", ".join(details.steps)
    if details.signals:
        yield "signals", ", ".join(details.signals)
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
    shown, total = details.links[:SHOWN], sum(details.linked.values())
    states = sorted(details.linked.items(), key=lambda each: -each[1])
    reasons = ", ".join(f"{count:,} {_state(state)}" for state, count in states)
    print_text(f"\n{'Linked jobs' if details.foreign else 'Children'}  ({reasons})", style="bold")
    width = max(len(link.name.strip()) for link in shown)
    for link in shown:
        told = f"{_state(link.status)}{'  not its child' if link.id in details.foreign else ''}"
        print_text(f"{INDENT}{link.name.strip():<{width}}  {link.id}  {told}", style=_style(link))
    if total > SHOWN:
        more = f"{total - SHOWN:,} more" if total <= COUNTED else f"more than {COUNTED - SHOWN:,} more"
        print_text(f"{INDENT}… {more}: windlass jobs list parent:{job.id}", style="dim")


def _state(state: State | None) -> str:
    return "gone" if state is None else state.value


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

"""`windlass gates`: shows, pauses and resumes the gates that jobs must pass to start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.parse.gate_options import SOON, ListGroup, gate_options, parse_target, read_known_names, suggest_name
from windlass.cli.parse.store_option import call_store, load_settings, store_options
from windlass.cli.show.output import (
    Cell,
    Column,
    age_cell,
    format_age,
    format_origin,
    print_detail,
    print_json,
    print_note,
    print_table,
    print_text,
)
from windlass.documents import gate_document

if TYPE_CHECKING:
    from datetime import datetime

    from windlass.methods.admin import GateName
    from windlass.model.admission import Closure, Gate
    from windlass.store.protocol import Store

COLUMNS = (
    Column("GATE", flexible=True),
    Column("STATE"),
    Column("SINCE", right=True),
    Column("BY", flexible=True, spare=1),
    Column("REASON", flexible=True),
)
STYLES = {"open": "green", "paused": "bold red", "draining": "yellow"}

CLAIMED = {"return": "paused", "finish": "draining"}
"""The state of a paused gate, by what becomes of jobs that a worker has claimed and not started."""

ABOUT = {"pause": "Start no more jobs; running jobs finish.", "resume": "Let jobs start again."}
MEANING = {
    "paused": "running jobs finish; no other job starts, and claimed jobs that wait in a worker go back to the queue",
    "draining": "running jobs finish, and jobs that workers have claimed still run; no other job is claimed",
    "open": "waiting jobs may start",
}


@click.group(cls=ListGroup, short_help="Pause and resume everything, a queue, a type or a tenant.")
def gates() -> None:
    """Pause and resume everything, a queue, a type of job, or a tenant.

    A job starts only if all of its gates are open: the one for everything, and those of its queue, type and tenant.
    Programs can enqueue while a gate is closed: the jobs wait in the store. Without a command, this lists the gates
    that an operator has changed.
    """


@gates.command("list", short_help="Show the gates that an operator has changed, closed ones first.")
@store_options
def list_gates(app: str | None, url: str | None, as_json: bool) -> None:
    """Show the gates that an operator has changed, closed ones first: state, age, actor and reason.

    In a pipe: one line per gate, with tabs between the columns and the time in UTC.
    """
    from windlass.clock import SystemClock

    settings = load_settings(url, app)
    rows, closures = call_store(settings, _read)
    if as_json:
        print_json({"gates": [gate_document(gate) for gate in rows]})
        return
    if not any(gate.state != "open" for gate in rows):
        print_text("every gate is open; pause one: windlass gates pause --queue mail --reason …", err=True)
    _print_spent_budgets(closures)
    now = SystemClock().now()
    if rows:
        print_table(COLUMNS, [_row(gate, now) for gate in rows])


async def _read(store: Store) -> tuple[list[Gate], list[Closure]]:
    return await store.gates(), await store.closures()


def _print_spent_budgets(closures: Sequence[Closure]) -> None:
    """A spent budget is no gate, but keeps jobs from starting, too."""
    spent = [closure for closure in closures if closure.state == "spent"]
    if spent:
        names = ", ".join(f"{closure.kind} {closure.name}" for closure in spent)
        print_note(f"the budget of {names} is spent: its jobs do not start; see: windlass budgets")


def _row(gate: Gate, now: datetime) -> list[Cell]:
    return [
        Cell(describe_gate(gate), raw=audit_subject(gate)),
        Cell(gate.state, STYLES[gate.state]),
        age_cell(gate.since, now),
        Cell(gate.actor or ""),
        Cell(gate.reason or "", "dim"),
    ]


def describe_gate(gate: Gate | GateName) -> str:
    """`queue mail`, for a message."""
    return "everything" if gate.kind == "all" else f"{gate.kind} {gate.name}"


def audit_subject(gate: Gate) -> str:
    """`queue:mail`, as the audit names it."""
    return "all" if gate.kind == "all" else f"{gate.kind}:{gate.name}"


# Changes


def _reason(command: Any) -> Any:
    return click.option("--reason", metavar="TEXT", help="Why; shown to other operators.")(command)


@gates.command("pause", short_help=ABOUT["pause"])
@gate_options
@click.option(
    "--claimed",
    type=click.Choice([*CLAIMED]),
    default="return",
    show_default=True,
    help="Jobs that a worker has claimed and not started: return them to the queue, or let them finish.",
)
@_reason
@store_options
def pause(claimed: str, **options: Any) -> None:
    """Start no more jobs; running jobs finish.

    Jobs that a worker has claimed and not started go back to the queue, or still run with --claimed finish. Workers
    know within a second. The audit records the reason, your name and the time (windlass audit). Repeating the command
    changes nothing, unless another --reason is given.
    """
    _change("pause", CLAIMED[claimed], **options)


@gates.command("resume", short_help=ABOUT["resume"])
@gate_options
@_reason
@store_options
def resume(**options: Any) -> None:
    """Let jobs start again.

    Waiting jobs may start; workers know within a second. The audit records the reason, your name and the time (windlass
    audit). Repeating the command changes nothing.
    """
    _change("resume", "open", **options)


def _change(
    verb: str,
    state: str,
    *,
    queue: str | None,
    type: str | None,
    tenant: str | None,
    everything: bool,
    reason: str | None,
    app: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    from windlass.methods.admin import checked_reason

    target = parse_target(verb, queue, type, tenant, everything)
    why = checked_reason(reason)
    settings = load_settings(url, app)
    changed, rows, known = call_store(settings, lambda store: _set_gate(store, target, state, why, settings.acting))
    suggest_name(target.kind.value, target.name, known)
    gate = next((gate for gate in rows if (gate.kind, gate.name) == (target.kind, target.name)), None)
    if as_json:
        print_json(_result_document(target, gate, changed))
    else:
        _print_result(target, gate, state, changed=changed)
        _print_still_closed(target, rows, state)


async def _set_gate(
    store: Store, target: GateName, state: str, reason: str | None, actor: str
) -> tuple[bool, list[Gate], set[str]]:
    from windlass.methods.admin import turn
    from windlass.model.admission import GateState

    known = await read_known_names(store, target.kind)
    changed = await turn(store, target, GateState(state), reason=reason, actor=actor)
    return changed, await store.gates(), known


def _result_document(target: GateName, gate: Gate | None, changed: bool) -> dict[str, Any]:
    """The gate and whether it changed. A gate without a row was never closed."""
    nothing = {"kind": target.kind, "name": target.name, "state": "open", "reason": None, "actor": None, "since": None}
    return {**(nothing if gate is None else gate_document(gate)), "changed": changed}


def _print_result(target: GateName, gate: Gate | None, state: str, *, changed: bool) -> None:
    from windlass.clock import SystemClock
    from windlass.model.admission import resume_command

    if changed:
        print_text(f"{describe_gate(target)} is {state}", style=STYLES[state])
        print_detail(f"{MEANING[state]}; {SOON}")
        if state != "open":
            print_detail(f"→ {resume_command(target.kind, target.name)}", style="dim")
        return
    history = ""
    if gate is not None:
        age = format_age(gate.since, SystemClock().now())
        history = f", since {age}{format_origin(gate.actor, gate.reason)}"
    print_text(f"{describe_gate(target)} is {state} already{history}")


def _print_still_closed(target: GateName, rows: Sequence[Gate], state: str) -> None:
    """Print the other closed gates: opening one gate does not start jobs that another gate keeps back."""
    closed = [gate for gate in rows if gate.state != "open"]
    if state != "open" or not closed:
        return
    if target.kind == "all":
        print_note(f"still closed: {', '.join(describe_gate(gate) for gate in closed[:5])}; see: windlass gates")
    elif closed[0].kind == "all":
        print_note(f"everything is still {closed[0].state}: windlass gates resume --all")

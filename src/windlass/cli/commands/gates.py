"""`windlass gates`: what may start, and who closed what, since when and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.parse.filter_args import join_words
from windlass.cli.parse.gate_options import SOON, ListGroup, gate_options, parse_target, read_known_names, suggest_name
from windlass.cli.parse.store_option import app_option, call_store, load_settings, url_option
from windlass.cli.show.output import (
    Cell,
    Column,
    as_json,
    format_age,
    print_detail,
    print_json,
    print_note,
    print_table,
    print_text,
)

if TYPE_CHECKING:
    from windlass.admin import Target
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

VERBS = {"pause": "paused", "drain": "draining", "open": "open"}
ABOUT = {
    "pause": "Let nothing start; running jobs finish.",
    "drain": "Claim nothing more; what is claimed still runs.",
    "open": "Let it start again.",
}
MEANING = {
    "paused": "running jobs finish; nothing new starts, and what waits in a worker's memory goes back to the queue",
    "draining": "running jobs finish, and so does what workers have claimed already; nothing more is claimed",
    "open": "what waits may start",
}


@click.group(cls=ListGroup, short_help="Open and close: everything, a queue, a type, a tenant.")
def gates() -> None:
    """Open and close: everything, a queue, a type of job, or a tenant.

    A job starts when no gate that it goes through is closed. Enqueuing goes on: jobs wait in the store. Without a
    command, this lists the gates that somebody touched.
    """


@gates.command("list", short_help="Show the gates that somebody touched, closed ones first.")
@app_option
@url_option
@as_json
def list_gates(app: str | None, url: str | None, as_json: bool) -> None:
    """Show the gates that somebody touched, closed ones first: since when, by whom, and why.

    In a pipe: one line per gate, with tabs between the columns and the time in UTC.
    """
    from windlass.clock import SystemClock

    settings = load_settings(url, app)
    rows, closures = call_store(settings, _read)
    if as_json:
        print_json({"gates": [gate_document(gate) for gate in rows]})
        return
    if not any(gate.state != "open" for gate in rows):
        print_text("every gate is open; close one: windlass gates pause --queue mail --reason …", err=True)
    _print_spent_budgets(closures)
    now = SystemClock().now()
    if rows:
        print_table(COLUMNS, [_row(gate, format_age(gate.since, now)) for gate in rows])


async def _read(store: Store) -> tuple[list[Gate], list[Closure]]:
    return await store.gates(), await store.closures()


def _print_spent_budgets(closures: Sequence[Closure]) -> None:
    """A spent budget is no gate, and keeps jobs from starting all the same."""
    spent = [closure for closure in closures if closure.state == "spent"]
    if spent:
        names = ", ".join(f"{closure.kind} {closure.name}" for closure in spent)
        print_note(f"the budget of {names} is spent, which closes like a gate: windlass budgets")


def _row(gate: Gate, age: str) -> list[Cell]:
    return [
        Cell(describe_gate(gate), raw=audit_subject(gate)),
        Cell(gate.state, STYLES[gate.state]),
        Cell(age, raw=gate.since.isoformat()),
        Cell(gate.actor or ""),
        Cell(gate.reason or "", "dim"),
    ]


def describe_gate(gate: Gate | Target) -> str:
    """`queue mail`, as a person says it."""
    return "everything" if gate.kind == "all" else f"{gate.kind} {gate.name}"


def audit_subject(gate: Gate) -> str:
    """`queue:mail`, as the audit names it."""
    return "all" if gate.kind == "all" else f"{gate.kind}:{gate.name}"


def open_command(kind: str, name: str) -> str:
    """The command that opens it."""
    return "windlass gates open " + (join_words([f"--{kind}", name]) if kind != "all" else "--all")


def gate_document(gate: Gate) -> dict[str, Any]:
    """A gate as `--json` tells it."""
    return {
        "kind": gate.kind,
        "name": gate.name,
        "state": gate.state,
        "reason": gate.reason,
        "actor": gate.actor,
        "since": gate.since,
    }


# Turning one


def _make_command(verb: str) -> click.Command:
    @click.command(verb, short_help=ABOUT[verb], help=_help(verb))
    @gate_options
    @click.option("--reason", metavar="TEXT", help="Why; the others will read it.")
    @app_option
    @url_option
    @as_json
    def command(
        queue: str | None,
        type: str | None,
        tenant: str | None,
        everything: bool,
        reason: str | None,
        app: str | None,
        url: str | None,
        as_json: bool,
    ) -> None:
        from windlass.admin import checked_reason

        target = parse_target(verb, queue, type, tenant, everything)
        why = checked_reason(reason)
        settings = load_settings(url, app)
        changed, rows, known = call_store(settings, lambda store: _set_gate(store, target, verb, why, settings.acting))
        suggest_name(target.kind.value, target.name, known)
        gate = next((gate for gate in rows if (gate.kind, gate.name) == (target.kind, target.name)), None)
        if as_json:
            print_json(_result_document(target, gate, changed))
        else:
            _print_result(target, gate, verb, changed=changed)
            _print_still_closed(target, rows, verb)

    return command


def _help(verb: str) -> str:
    meaning = MEANING[VERBS[verb]]
    return f"""{ABOUT[verb]}

    {meaning[0].upper()}{meaning[1:]}; {SOON}. It is written down with --reason, your name and the time
    (windlass audit). Saying it again changes nothing but the reason, where another one is given."""


async def _set_gate(
    store: Store, target: Target, verb: str, reason: str | None, actor: str
) -> tuple[bool, list[Gate], set[str]]:
    from windlass.admin import turn
    from windlass.model.admission import GateState

    known = await read_known_names(store, target.kind)
    changed = await turn(store, target, GateState(VERBS[verb]), reason=reason, actor=actor)
    return changed, await store.gates(), known


def _result_document(target: Target, gate: Gate | None, changed: bool) -> dict[str, Any]:
    """A gate that nobody ever touched is open, and has no story."""
    nothing = {"kind": target.kind, "name": target.name, "state": "open", "reason": None, "actor": None, "since": None}
    return {**(nothing if gate is None else gate_document(gate)), "changed": changed}


def _print_result(target: Target, gate: Gate | None, verb: str, *, changed: bool) -> None:
    from windlass.clock import SystemClock

    state = VERBS[verb]
    if changed:
        print_text(f"{describe_gate(target)} is {state}", style=STYLES[state])
        print_detail(f"{MEANING[state]}; {SOON}")
        if state != "open":
            print_detail(f"→ {open_command(target.kind, target.name)}", style="dim")
        return
    story = ""
    if gate is not None:
        by = f" by {gate.actor}" if gate.actor else ""
        why = f": {gate.reason}" if gate.reason else ""
        story = f", since {format_age(gate.since, SystemClock().now())}{by}{why}"
    print_text(f"{describe_gate(target)} is {state} already{story}")


def _print_still_closed(target: Target, rows: Sequence[Gate], verb: str) -> None:
    """Opening one gate starts nothing that another one holds."""
    closed = [gate for gate in rows if gate.state != "open"]
    if verb != "open" or not closed:
        return
    if target.kind == "all":
        print_note(f"still closed: {', '.join(describe_gate(gate) for gate in closed[:5])}; see: windlass gates")
    elif closed[0].kind == "all":
        print_note(f"everything is {closed[0].state} still: windlass gates open --all")


for verb in VERBS:
    gates.add_command(_make_command(verb))

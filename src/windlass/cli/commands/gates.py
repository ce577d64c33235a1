"""`windlass gates`: what may start, and who closed what, since when and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.parse.filter_args import shown
from windlass.cli.parse.gate_options import SOON, Listing, gate_options, hint, known_names, target_of
from windlass.cli.parse.store_option import app_option, ask, settings_of, url_option
from windlass.cli.show.output import Cell, Column, as_json, explain, note, print_json, print_table, say, since

if TYPE_CHECKING:
    from windlass.admin import GateName
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


@click.group(cls=Listing, short_help="Open and close: everything, a queue, a type, a tenant.")
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

    settings = settings_of(url, app)
    rows, closures = ask(settings, _look)
    if as_json:
        print_json({"gates": [document(gate) for gate in rows]})
        return
    if not any(gate.state != "open" for gate in rows):
        say("every gate is open; close one: windlass gates pause --queue mail --reason …", err=True)
    _tell_budgets(closures)
    now = SystemClock().now()
    if rows:
        print_table(COLUMNS, [_row(gate, since(gate.since, now)) for gate in rows])


async def _look(store: Store) -> tuple[list[Gate], list[Closure]]:
    return await store.gates(), await store.closures()


def _tell_budgets(closures: Sequence[Closure]) -> None:
    """A spent budget is no gate, and keeps jobs from starting all the same."""
    spent = [closure for closure in closures if closure.state == "spent"]
    if spent:
        names = ", ".join(f"{closure.kind} {closure.name}" for closure in spent)
        note(f"the budget of {names} is spent, which closes like a gate: windlass budgets")


def _row(gate: Gate, age: str) -> list[Cell]:
    return [
        Cell(words_of(gate), raw=subject_of(gate)),
        Cell(gate.state, STYLES[gate.state]),
        Cell(age, raw=gate.since.isoformat()),
        Cell(gate.actor or ""),
        Cell(gate.reason or "", "dim"),
    ]


def words_of(gate: Gate | GateName) -> str:
    """`queue mail`, as a person says it."""
    return "everything" if gate.kind == "all" else f"{gate.kind} {gate.name}"


def subject_of(gate: Gate) -> str:
    """`queue:mail`, as the audit names it."""
    return "all" if gate.kind == "all" else f"{gate.kind}:{gate.name}"


def opener(kind: str, name: str) -> str:
    """The command that opens it."""
    return "windlass gates open " + (shown([f"--{kind}", name]) if kind != "all" else "--all")


def document(gate: Gate) -> dict[str, Any]:
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


def _make(verb: str) -> click.Command:
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

        target = target_of(verb, queue, type, tenant, everything)
        why = checked_reason(reason)
        settings = settings_of(url, app)
        changed, rows, known = ask(settings, lambda store: _turn(store, target, verb, why, settings.acting))
        hint(target.kind.value, target.name, known)
        gate = next((gate for gate in rows if (gate.kind, gate.name) == (target.kind, target.name)), None)
        if as_json:
            print_json(_turned(target, gate, changed))
        else:
            _tell(target, gate, verb, changed=changed)
            _tell_others(target, rows, verb)

    return command


def _help(verb: str) -> str:
    meaning = MEANING[VERBS[verb]]
    return f"""{ABOUT[verb]}

    {meaning[0].upper()}{meaning[1:]}; {SOON}. It is written down with --reason, your name and the time
    (windlass audit). Saying it again changes nothing but the reason, where another one is given."""


async def _turn(
    store: Store, target: GateName, verb: str, reason: str | None, actor: str
) -> tuple[bool, list[Gate], set[str]]:
    from windlass.admin import turn
    from windlass.model.admission import GateState

    known = await known_names(store, target.kind)
    changed = await turn(store, target, GateState(VERBS[verb]), reason=reason, actor=actor)
    return changed, await store.gates(), known


def _turned(target: GateName, gate: Gate | None, changed: bool) -> dict[str, Any]:
    """A gate that nobody ever touched is open, and has no story."""
    nothing = {"kind": target.kind, "name": target.name, "state": "open", "reason": None, "actor": None, "since": None}
    return {**(nothing if gate is None else document(gate)), "changed": changed}


def _tell(target: GateName, gate: Gate | None, verb: str, *, changed: bool) -> None:
    from windlass.clock import SystemClock

    state = VERBS[verb]
    if changed:
        say(f"{words_of(target)} is {state}", style=STYLES[state])
        explain(f"{MEANING[state]}; {SOON}")
        if state != "open":
            explain(f"→ {opener(target.kind, target.name)}", style="dim")
        return
    story = ""
    if gate is not None:
        by = f" by {gate.actor}" if gate.actor else ""
        why = f": {gate.reason}" if gate.reason else ""
        story = f", since {since(gate.since, SystemClock().now())}{by}{why}"
    say(f"{words_of(target)} is {state} already{story}")


def _tell_others(target: GateName, rows: Sequence[Gate], verb: str) -> None:
    """Opening one gate starts nothing that another one holds."""
    closed = [gate for gate in rows if gate.state != "open"]
    if verb != "open" or not closed:
        return
    if target.kind == "all":
        note(f"still closed: {', '.join(words_of(gate) for gate in closed[:5])}; see: windlass gates")
    elif closed[0].kind == "all":
        note(f"everything is {closed[0].state} still: windlass gates open --all")


for verb in VERBS:
    gates.add_command(_make(verb))

"""`windlass schedules`: shows schedules, and pauses, edits and fires them."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.parse.complete import complete_name
from windlass.cli.parse.gate_options import ListGroup
from windlass.cli.parse.store_option import call_store, load_settings, store_options
from windlass.cli.show.output import Cell, Column, print_json, print_table, print_text

if TYPE_CHECKING:
    from datetime import datetime

    from windlass.handles.schedule import Change
    from windlass.model.schedule import ScheduleRow
    from windlass.store.protocol import Store

TICKS_SHOWN = 10

COLUMNS = (
    Column("SCHEDULE", flexible=True),
    Column("WHEN", flexible=True),
    Column("NEXT"),
    Column("LAST", spare=2),
    Column("TYPE", flexible=True, spare=1),
    Column("STATE"),
)
STYLES = {"paused": "yellow", "late": "bold red", "over": "dim"}


@click.group(cls=ListGroup, short_help="Show, pause, edit and fire schedules.")
def schedules() -> None:
    """Show schedules; pause, edit and fire them.

    A program declares its schedules (app.schedule); its worker writes them to the database when it starts. An edit or
    a pause stays in effect through the next deploy. Without a command, this lists the schedules.
    """


# Reading


@schedules.command("list", short_help="Show each schedule: when, next, last, state.")
@store_options
def list_schedules(app: str | None, url: str | None, as_json: bool) -> None:
    """Show each schedule: its timing in plain words, its next and its last tick, and its state.

    `late`: a tick is due for more than 30 seconds, so no worker of its program is running. `over`: the schedule does
    not tick again. In a pipe: one line per schedule, with tabs between the columns and times in UTC.
    """
    from windlass.documents import schedule_document
    from windlass.methods.reads import read_schedules

    settings = load_settings(url, app)
    rows = call_store(settings, read_schedules)
    if as_json:
        print_json({"schedules": [schedule_document(row) for row in rows]})
        return
    if not rows:
        from windlass.store import masked

        print_text(f"no schedule is known in {masked(settings.url)}", err=True)
        print_text(
            '  declare one: app.schedule("nightly", report.call(), cron="0 3 * * *"), and start a worker', err=True
        )
        return
    for row in rows:
        _print_late(row, app)
    print_table(COLUMNS, [_row(row) for row in rows])


def _row(row: ScheduleRow) -> list[Cell]:
    from windlass.cli.show.schedule_report import describe_next, format_relative

    state = _state(row)
    return [
        Cell(row.name),
        Cell(row.when),
        Cell(
            describe_next(row) or "–",
            raw="" if row.next_at is None or row.paused else row.next_at.isoformat(),
        ),
        Cell(
            "–" if row.last_at is None else format_relative(row.last_at, row.now),
            "dim",
            raw="" if row.last_at is None else row.last_at.isoformat(),
        ),
        Cell(row.job.type),
        Cell(state, next((style for word, style in STYLES.items() if word in state), "")),
    ]


def _state(row: ScheduleRow) -> str:
    describe_state = "paused" if row.paused else "over" if row.next_at is None else "late" if row.late else "on"
    return describe_state if row.edited is None else f"{describe_state}, edited"


def _print_late(row: ScheduleRow, app: str | None) -> None:
    from windlass.clock import format_span

    late = row.late
    if late is not None:
        print_text(f"{row.name} is due since {format_span(late)}, and no worker fires it", style="bold red", err=True)
        print_text(f"  → windlass worker {app or 'app.py'}   or, if no program declares it any more:", err=True)
        print_text(f"  → windlass schedules forget {shlex.quote(row.name)}", err=True)


@schedules.command("show", short_help="Show one schedule, with its next five fires.")
@click.argument("name", shell_complete=complete_name("schedule"))
@store_options
def show(name: str, app: str | None, url: str | None, as_json: bool) -> None:
    """Show one schedule: the job that it enqueues, its edits, its next five fires, and its last ticks.

    Times are in the schedule's own time zone, and in this machine's where that is another time.
    """
    from windlass.cli.show.schedule_report import print_schedule
    from windlass.documents import schedule_document, tick_document

    row, ticks = call_store(load_settings(url, app), lambda store: _read(store, name))
    if as_json:
        print_json({**schedule_document(row), "ticks": [tick_document(tick) for tick in ticks]})
        return
    _print_late(row, app)
    print_schedule(row, ticks)


async def _read(store: Store, name: str) -> tuple[ScheduleRow, list[Any]]:
    return await _find(store, name), await store.ticks(name, page=TICKS_SHOWN)


async def _find(store: Store, name: str) -> ScheduleRow:
    from windlass.handles.schedule import find

    return await find(store, name)


# Changes


@schedules.command("pause", short_help="Stop firing until the schedule is resumed.")
@click.argument("name", shell_complete=complete_name("schedule"))
@click.option("--reason", metavar="TEXT", help="Why; shown to other operators.")
@store_options
def pause(name: str, reason: str | None, app: str | None, url: str | None, as_json: bool) -> None:
    """Stop firing the schedule until it is resumed. A deploy does not resume it; running jobs go on.

    Repeating the command changes nothing, unless another --reason is given.
    """
    from windlass.methods.admin import checked_reason

    why = checked_reason(reason)
    _operate(
        name,
        lambda store, actor: store.pause_schedule(name, reason=why, actor=actor),
        app,
        url,
        as_json=as_json,
        done="is paused",
        already="was paused already",
        hint=f"windlass schedules resume {shlex.quote(name)}",
    )


@schedules.command("resume", short_help="Fire the schedule again, from now on.")
@click.argument("name", shell_complete=complete_name("schedule"))
@store_options
def resume(name: str, app: str | None, url: str | None, as_json: bool) -> None:
    """Fire the schedule again, from now on; the ticks during the pause are not fired.

    A single time (at=) that fell into the pause counts as missed, and is fired late unless catch_up is skip.
    """
    _operate(
        name,
        lambda store, actor: store.resume_schedule(name, actor=actor),
        app,
        url,
        as_json=as_json,
        done="is resumed",
        already="was not paused",
    )


@schedules.command("edit", short_help="Change when and how a schedule fires, until it is reset.")
@click.argument("name", shell_complete=complete_name("schedule"))
@click.option("--cron", metavar="LINE", help="Such as '0 3 * * *'; keeps the time zone unless --tz is given.")
@click.option("--every", metavar="TIME", help="Such as 15m, counted from the epoch.")
@click.option("--at", metavar="WHEN", help="Once, such as 2026-08-01T03:00+02:00.")
@click.option("--tz", metavar="ZONE", help="The time zone of a cron line, such as Europe/Berlin.")
@click.option("--catch-up", metavar="POLICY", help="What happens to missed ticks: skip, one or all.")
@click.option("--overlap", metavar="POLICY", help="When the last job has not ended: allow, skip or cancel.")
@click.option("--queue", metavar="QUEUE", help="The queue of its jobs.", shell_complete=complete_name("queue"))
@click.option("--priority", type=int, help="The priority of its jobs.")
@store_options
def edit(
    name: str, every: str | None, at: str | None, app: str | None, url: str | None, as_json: bool, **given: Any
) -> None:
    """Change when and how a schedule fires. `windlass schedules reset` goes back to the code's declaration.

    A new timing begins with its next tick from now. Deploys do not change an edit.
    """
    from windlass.handles.schedule import edit_of

    typed = {
        "every": None if every is None else _parse_interval(every),
        "at": None if at is None else _parse_moment(at),
    }
    change: Change = {**given, **typed}  # type: ignore[typeddict-item]
    edited = edit_of(f"schedule {name!r}", change, flags=True)
    _operate(
        name,
        lambda store, actor: store.edit_schedule(name, edited, actor=actor),
        app,
        url,
        as_json=as_json,
        done="is edited",
        already="was so already",
        hint=f"windlass schedules reset {shlex.quote(name)}",
    )


def _parse_interval(text: str) -> float:
    from windlass.clock import seconds
    from windlass.errors import ConfigError
    from windlass.policy.cron import SHORTEST

    try:
        every = seconds(text)
    except ConfigError:
        raise click.UsageError(f"--every {text!r} is no duration; write it like 90s, 15m or 1h30m") from None
    if every < SHORTEST:
        raise click.UsageError(f"--every {text!r} is too short; it must be {SHORTEST:g} s or more, such as 15m")
    return every


def _parse_moment(text: str) -> datetime:
    from datetime import datetime

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"--at {text!r} is no time; write it like 2026-08-01T03:00+02:00") from None
    if moment.tzinfo is None:
        raise click.UsageError(
            f"--at {text!r} has no time zone; write it like 2026-08-01T03:00+02:00, or 2026-08-01T01:00Z for UTC"
        )
    return moment


@schedules.command("reset", short_help="Remove every edit of a schedule.")
@click.argument("name", shell_complete=complete_name("schedule"))
@store_options
def reset(name: str, app: str | None, url: str | None, as_json: bool) -> None:
    """Remove every edit: the schedule fires as its program declares it. A pause stays."""
    _operate(
        name,
        lambda store, actor: store.reset_schedule(name, actor=actor),
        app,
        url,
        as_json=as_json,
        done="is as the code declares it",
        already="was not edited",
    )


@schedules.command("fire", short_help="Enqueue a job of a schedule now.")
@click.argument("name", shell_complete=complete_name("schedule"))
@store_options
def fire(name: str, app: str | None, url: str | None, as_json: bool) -> None:
    """Enqueue a job of the schedule now, even while the schedule is paused. Its ticks do not change.

    The command prints the job's id, or the id of the job that holds its unique key.
    """
    settings = load_settings(url, app)
    job, existing = call_store(settings, lambda store: store.fire_schedule(name, actor=settings.acting))
    if as_json:
        print_json({"name": name, "job": job, "existing": existing})
        return
    if existing:
        print_text(f"no new job: this one has the unique key of {name}", err=True)
    click.echo(str(job))


@schedules.command("forget", short_help="Remove a schedule that no program declares any more.")
@click.argument("name", shell_complete=complete_name("schedule"))
@click.option("-y", "--yes", is_flag=True, help="Even if a worker is alive and the schedule is not late.")
@store_options
def forget(name: str, yes: bool, app: str | None, url: str | None, as_json: bool) -> None:
    """Remove a schedule that no program declares any more, with its edits and its pause. Its jobs stay.

    A schedule that a program still declares would stop, and come back when a worker of the program starts. Therefore
    the command refuses while the schedule is not late and a worker is alive, unless you add --yes. To stop a schedule:
    windlass schedules pause.
    """
    from windlass.handles.schedule import forget as forget_schedule

    settings = load_settings(url, app)
    call_store(settings, lambda store: forget_schedule(store, name, force=yes, actor=settings.acting))
    if as_json:
        print_json({"name": name, "forgotten": True})
    else:
        print_text(f"{name} is forgotten", style="green")


def _operate(
    name: str,
    act: Callable[[Store, str], Awaitable[bool]],
    app: str | None,
    url: str | None,
    *,
    as_json: bool,
    done: str,
    already: str = "",
    hint: str | None = None,
) -> None:
    """Change the schedule, and print its new state."""
    from windlass.cli.show.schedule_report import describe_state, print_fires
    from windlass.documents import schedule_document
    from windlass.policy.cron import describe

    settings = load_settings(url, app)

    async def act_and_read(store: Store) -> tuple[bool, ScheduleRow]:
        changed = await act(store, settings.acting)
        return changed, await _find(store, name)

    changed, row = call_store(settings, act_and_read)
    if as_json:
        print_json({**schedule_document(row), "changed": changed})
        return
    print_text(f"{name} {done if changed else already}", style="green" if changed else None)
    print_text(f"  {describe(row.timing)}")
    if row.paused and not changed:
        print_text(f"  {describe_state(row)[0]}")
    if hint is not None and (changed or row.paused):
        print_text(f"  → {hint}", style="dim")
    print_fires(row)

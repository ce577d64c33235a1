"""`windlass dead`: dead letters, one view over dead jobs and the broker's dead-letter queue.

`methods/dead_letters.py` decides; here is what the user types, confirms and sees.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.commands.bulk import change_jobs, choose_jobs, confirm_count, confirm_jobs
from windlass.cli.commands.rerun import rerun
from windlass.cli.exit_codes import REFUSED
from windlass.cli.parse.complete import complete_filter
from windlass.cli.parse.filter_args import FilterCommand, filter_argument, parse_filter, parse_ids
from windlass.cli.parse.gate_options import NamedListGroup
from windlass.cli.parse.options import count_option
from windlass.cli.parse.store_option import call_store, load_settings, store_options
from windlass.cli.show.output import (
    Cell,
    Column,
    age_cell,
    format_count,
    id_cell,
    print_detail,
    print_json,
    print_note,
    print_table,
    print_text,
)
from windlass.model.state import Verb

if TYPE_CHECKING:
    from datetime import datetime

    from windlass.config import Settings
    from windlass.model.rows import DeadReport, DeadRow

COLUMNS = (
    Column("KIND"),
    Column("ID"),
    Column("TYPE", flexible=True, least=8),
    Column("QUEUE", flexible=True, spare=2, least=8),
    Column("JOB", spare=1),
    Column("AGE", right=True, spare=3),
    Column("REASON", flexible=True, least=24),
)
SHOWN = 2_000  # characters of a payload; --full shows all of it
DONE = {Verb.REPLAY: "replayed", Verb.DISCARD: "discarded"}
MOST_REASONS = 10  # refusals that are printed one by one


@click.group(cls=NamedListGroup, short_help="List, show, edit, replay and discard dead letters.")
def dead() -> None:
    """Dead letters: dead jobs, and the messages in the broker's dead-letter queue.

    The store decides: a dead job is a row there, and the broker's copy of it only a view. Without a broker, these
    commands work on dead jobs alone. Without a command, this lists both.
    """


@dead.command("list", cls=FilterCommand, short_help="List dead jobs and the broker's letters.")
@filter_argument
@click.option("--letters", is_flag=True, help="Only the broker's letters, copies of dead jobs among them.")
@count_option
@store_options
def list_dead(
    words: tuple[str, ...], letters: bool, limit: int, app: str | None, url: str | None, as_json: bool
) -> None:
    """List dead jobs, newest first, and then the letters in the broker's dead-letter queue.

    A FILTER (see: windlass jobs --help) chooses among dead jobs; with one, no letters are listed. A letter that is a
    copy of a dead job is listed with --letters only. The column JOB is the state of a letter's job: gone means that
    there is no such job, unreadable that the message is no envelope.
    """
    from windlass.clock import SystemClock
    from windlass.methods.dead_letters import checked_kinds, read_dead
    from windlass.methods.reads import LARGEST_PAGE

    if letters and words:
        raise click.UsageError("a filter is for jobs, and --letters is for the broker's messages; give one of them")
    settings, filter = load_settings(url, app), parse_filter(words)
    if letters:
        _require_broker(settings)
    kinds, count = checked_kinds("letter" if letters else None), min(limit, LARGEST_PAGE)
    found = call_store(settings, lambda store: read_dead(store, settings, filter, count, kinds))
    if as_json:
        print_json({"dead_letters": found.rows, "problem": found.problem})
        return
    if found.problem is not None:
        print_note(f"the broker's letters are not listed: {found.problem}")
    if not found.rows:
        print_text("there are no dead letters" + (f" that match {filter.text}" if filter.text else ""), err=True)
        return
    now = SystemClock().now()
    print_table(COLUMNS, [_row(row, now) for row in found.rows])


def _row(row: DeadRow, now: datetime) -> list[Cell]:
    return [
        Cell(row.kind.value, "yellow" if row.kind == "letter" else ""),
        Cell(row.id) if row.kind == "letter" or row.job is None else id_cell(row.job),
        Cell(row.type or ""),
        Cell(row.queue or ""),
        Cell(row.state, "red" if row.state == "dead" else "dim"),
        Cell("") if row.at is None else age_cell(row.at, now),
        Cell(" · ".join(part for part in (row.reason, row.error) if part)),
    ]


@dead.command("show", short_help="Show one dead job, or one letter with its payload.")
@click.argument("id")
@click.option("--full", is_flag=True, help="The whole input and traceback, or the whole payload.")
@store_options
@click.pass_context
def show(ctx: click.Context, id: str, full: bool, app: str | None, url: str | None, as_json: bool) -> None:
    """Show one dead job as `windlass jobs show` does, or one letter: its reason, payload, and what a replay does."""
    from windlass.methods.dead_letters import LETTER

    if not id.startswith(LETTER):
        from windlass.cli.commands.jobs import show as show_job

        ctx.invoke(show_job, id=id, full=full, app=app, url=url, as_json=as_json)
        return
    row = _read_letter(load_settings(url, app), id)
    if as_json:
        print_json(row)
        return
    _print_letter(row, full)


def _read_letter(settings: Settings, id: str) -> DeadRow:
    from windlass.errors import JobNotFound
    from windlass.methods.broker import open_broker
    from windlass.methods.dead_letters import read_letters
    from windlass.store.protocol import Store

    broker = _require_broker(settings)

    async def read(store: Store) -> list[DeadRow]:
        async with open_broker(broker) as dispatcher:
            return await read_letters(store, dispatcher)

    found = [row for row in call_store(settings, read) if row.id == id]
    if not found:
        raise JobNotFound(f"the broker has no {id}: it was replayed or discarded; windlass dead --letters lists them")
    return found[0]


def _print_letter(row: DeadRow, full: bool) -> None:
    from windlass.methods.dead_letters import REFUSALS

    payload = row.payload or ""
    print_text(f"{row.id}  {row.reason}", style="bold")
    print_detail(f"put aside {row.at:%Y-%m-%d %H:%M:%S} UTC" if row.at else "put aside at an unknown time")
    if row.queue:
        print_detail(f"queue {row.queue}")
    if row.job:
        print_detail(f"job {row.job}, type {row.type}: {row.state}")
    match row.state:
        case "dead":
            print_detail("a replay starts the job over, and removes the letter")
        case "queued" | "failed":
            print_detail("a replay delivers the job again, and removes the letter")
        case _:
            print_detail(f"it cannot be replayed: {REFUSALS[row.state].replace('ID', str(row.job))}")
    cut = len(payload) > SHOWN and not full
    print_text(payload[:SHOWN] if cut else payload)
    if cut:
        print_detail(f"{len(payload) - SHOWN:,} more characters: windlass dead show {row.id} --full", style="dim")


@dead.command("edit", short_help="Start a dead job over with another input.")
@click.argument("id")
@click.option("--input", "text", metavar="JSON", required=True, help="The whole new input.")
@store_options
@click.pass_context
def edit(ctx: click.Context, id: str, text: str, app: str | None, url: str | None, as_json: bool) -> None:
    """Enqueue a copy of a dead job with another input, and discard the old one: both or neither.

    It is `windlass jobs rerun ID --input JSON --discard`. A letter of the broker cannot be edited: its job's input is
    in the store.
    """
    from windlass.methods.dead_letters import LETTER

    if id.startswith(LETTER):
        raise click.UsageError(
            f"{id} is a letter of the broker, and the input of a job is in the store; edit its job: "
            f"windlass dead show {id} names it"
        )
    ctx.invoke(rerun, id=id, text=text, discard=True, app=app, url=url, as_json=as_json)


# Replay and discard


def make_command(verb: Verb) -> click.Command:
    """The command of a verb."""
    about = {
        Verb.REPLAY: "Start dead jobs over, or deliver letters again.",
        Verb.DISCARD: "Remove dead jobs or letters for good.",
    }

    @click.command(verb.value, cls=FilterCommand, short_help=about[verb], help=f"{about[verb]}\n\n{HELP[verb]}")
    @click.argument("words", nargs=-1, metavar="FILTER… | ID…", shell_complete=complete_filter)
    @click.option("-y", "--yes", is_flag=True, help="Do not ask.")
    @click.option("--all", "everything", is_flag=True, help="Every dead job; instead of a filter.")
    @click.option("--letters", is_flag=True, help="Every letter of the broker; instead of a filter.")
    @click.option("--dry-run", is_flag=True, help="Show what would be changed, and change nothing.")
    @store_options
    @click.pass_context
    def command(
        ctx: click.Context,
        words: tuple[str, ...],
        yes: bool,
        everything: bool,
        letters: bool,
        dry_run: bool,
        app: str | None,
        url: str | None,
        as_json: bool,
    ) -> None:
        from windlass.methods.dead_letters import LETTER

        if sum((bool(words), everything, letters)) != 1:
            raise click.UsageError(
                f"give ids, a filter, --all or --letters, for example: windlass dead {verb} queue:mail age:1h.."
            )
        settings = load_settings(url, app)
        named = [word.removeprefix(LETTER) for word in words if word.startswith(LETTER)]
        if named and len(named) < len(words):
            raise click.UsageError("letters and jobs are changed by two commands; give the ids of one kind")
        if letters or named:
            ctx.exit(_change_letters(ctx, settings, verb, named or None, yes=yes, dry_run=dry_run, as_json=as_json))
        ctx.exit(_change_jobs(ctx, settings, verb, words, yes=yes, dry_run=dry_run, as_json=as_json))

    return command


HELP = {
    Verb.REPLAY: (
        "Give ids of dead jobs, a FILTER among dead jobs (see: windlass jobs --help), or ids of letters. A replayed "
        "job keeps its id, with attempts from zero. A letter whose job is dead replays the job; one whose job can be "
        "claimed delivers it again; any other is refused with its reason. The broker's copies of the jobs are removed. "
        "The command shows the exact count and asks; above 100 you confirm by typing the number. Exit 1 when one was "
        "refused."
    ),
    Verb.DISCARD: (
        "Give ids of dead jobs, a FILTER among dead jobs (see: windlass jobs --help), or ids of letters. The broker's "
        "copies of discarded jobs are removed. A discarded letter leaves its job as it is. The command shows the exact "
        "count and asks; above 100 you confirm by typing the number. Exit 1 when one was refused."
    ),
}


def _change_jobs(
    ctx: click.Context,
    settings: Settings,
    verb: Verb,
    words: tuple[str, ...],
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    chosen = choose_jobs(ctx, settings, verb, words)
    if dry_run:
        if as_json:
            print_json({"verb": verb, "filter": chosen.filter, "matched": chosen.count, "types": chosen.by_type()})
        else:
            types = ", ".join(f"{number:,} {type}" for type, number in chosen.by_type().items())
            print_text(f"{format_count(chosen.count, 'job')} would be {DONE[verb]}" + (f": {types}" if types else ""))
        return 0
    named = bool(parse_ids(words)) and verb is not Verb.DISCARD
    if chosen.jobs and not (yes or named):
        confirm_jobs(ctx, settings, verb, chosen)
    return change_jobs(settings, chosen, as_json=as_json)


def _change_letters(
    ctx: click.Context,
    settings: Settings,
    verb: Verb,
    ids: list[str] | None,
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    from windlass.methods.dead_letters import change_letters

    _require_broker(settings)

    def change(*, dry: bool) -> DeadReport:
        return call_store(
            settings,
            lambda store: change_letters(store, settings, verb, ids, actor=settings.acting, dry_run=dry),
        )

    if not yes and not dry_run and (ids is None or verb is Verb.DISCARD):
        found = change(dry=True)
        if found.matched:
            print_text(f"{verb} {format_count(found.matched, 'letter')} of the broker", style="bold", err=True)
            confirm_count(ctx, found.matched)
    report = change(dry=dry_run)
    if as_json:
        print_json({"verb": verb, "dry_run": dry_run, **_document(report)})
    else:
        _print_report(verb, report, dry_run)
    return REFUSED if report.refused and not dry_run else 0


def _document(report: DeadReport) -> dict[str, Any]:
    return {
        "matched": report.matched,
        "changed": report.changed,
        "delivered": report.delivered,
        "removed": report.removed,
        "refused": [{"id": id, "reason": reason} for id, reason in report.refused],
        "problem": report.problem,
    }


def _print_report(verb: Verb, report: DeadReport, dry_run: bool) -> None:
    from windlass.methods.dead_letters import MOST_LETTERS

    if dry_run:
        able = report.matched - (0 if verb is Verb.DISCARD else len(report.refused))
        print_text(f"{format_count(max(0, able), 'letter')} would be {DONE[verb]}")
    else:
        parts = []
        if report.changed:
            parts.append(f"{format_count(report.changed, 'job')} replayed")
        if report.delivered:
            parts.append(f"{format_count(report.delivered, 'job')} delivered again")
        parts.append(f"{format_count(report.removed, 'letter')} removed from the broker")
        print_text(", ".join(parts), style="green" if not report.refused else None)
    if report.problem is not None:
        print_note(f"letters were not removed: {report.problem}")
    if report.matched >= MOST_LETTERS:
        print_note(f"{MOST_LETTERS:,} letters are read at once, and there may be more: repeat the command")
    for id, reason in report.refused[:MOST_REASONS]:
        print_detail(f"{id}: {reason}", style="yellow")
    if len(report.refused) > MOST_REASONS:
        reasons = Counter(reason for _, reason in report.refused[MOST_REASONS:])
        for reason, count in reasons.most_common():
            print_detail(f"{count:,} more: {reason}", style="yellow")


def _require_broker(settings: Settings) -> str:
    from windlass.methods.broker import broker_url

    return broker_url(settings)


for verb in (Verb.REPLAY, Verb.DISCARD):
    dead.add_command(make_command(verb))

"""`windlass jobs cancel|retry|replay|resume|discard`: change one job, or all that match.

The jobs are chosen before the user is asked to confirm: the count is exact, and no other job is changed afterwards.
`methods/bulk.py` chooses and changes them; here is what the user types, confirms and sees.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio import CancelledError
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from windlass.cli.exit_codes import INTERRUPTED, REFUSED
from windlass.cli.parse.complete import complete_filter
from windlass.cli.parse.filter_args import FilterCommand, parse_filter, parse_ids
from windlass.cli.parse.find_jobs import find_misspelt_names, find_one
from windlass.cli.parse.store_option import call_store, load_settings, store_options
from windlass.cli.show.output import format_count, print_detail, print_json, print_note, print_text
from windlass.methods.bulk import PAGE, BulkChange, Chosen, choose, states_for
from windlass.model.rows import FoundJob
from windlass.model.state import FINAL, State, Verb
from windlass.store.parts.refusals import describe_sources

if TYPE_CHECKING:
    from windlass.config import Settings
    from windlass.model.filter import Filter
    from windlass.store.protocol import Store

TYPED_FROM = 100  # jobs: above this, the user confirms by typing the number
ASKED = 20  # jobs and links per job that are checked for children

ABOUT = {
    Verb.CANCEL: ("Cancel jobs: at once, or by asking the worker that runs them.", "cancelled"),
    Verb.RETRY: ("Make failed jobs due now.", "made due now"),
    Verb.REPLAY: ("Start dead jobs over: same id, attempts from zero.", "replayed"),
    Verb.RESUME: ("Bring cancelled jobs back.", "resumed"),
    Verb.DISCARD: ("Remove dead jobs for good.", "discarded"),
}


def make_command(verb: Verb) -> click.Command:
    """The command of a verb."""

    @click.command(verb.value, cls=FilterCommand, short_help=ABOUT[verb][0], help=_help(verb))
    @click.argument("words", nargs=-1, metavar="FILTER… | ID…", shell_complete=complete_filter)
    @click.option("-y", "--yes", is_flag=True, help="Do not ask.")
    @click.option("--all", "everything", is_flag=True, help="Every job in a state that allows it; instead of a filter.")
    @store_options
    @click.pass_context
    def command(
        ctx: click.Context,
        words: tuple[str, ...],
        yes: bool,
        everything: bool,
        app: str | None,
        url: str | None,
        as_json: bool,
    ) -> None:
        if bool(words) == everything:
            what = "give --all or a filter, not both" if words else "give ids, a filter, or --all"
            raise click.UsageError(f"{what}, for example: windlass jobs {verb} {_example(verb)}")
        settings = load_settings(url, app)
        chosen = choose_jobs(ctx, settings, verb, words)
        named = bool(parse_ids(words)) and verb is not Verb.DISCARD
        if chosen.jobs and not (yes or named):
            confirm_jobs(ctx, settings, verb, chosen)
        ctx.exit(change_jobs(settings, chosen, as_json=as_json))

    return command


def _help(verb: Verb) -> str:
    *others, last = sorted(states_for(verb))
    allowed = f"{', '.join(others)} or {last}" if others else last
    return (
        f"{ABOUT[verb][0]}\n\nGive ids, or a FILTER (see: windlass jobs --help). Unless the filter names a state, "
        f"only jobs that are {allowed} are chosen. For a filter the command shows the exact count and asks; "
        f"above {TYPED_FROM} jobs you confirm by typing the number. Exit 1 when a job was refused."
    )


def _example(verb: Verb) -> str:
    return "queue:mail age:1h.."


# Choose


def choose_jobs(ctx: click.Context, settings: Settings, verb: Verb, words: tuple[str, ...]) -> Chosen:
    ids = parse_ids(words)
    if ids:
        return call_store(settings, lambda store: _choose_by_id(ctx, store, verb, words))
    filter = parse_filter(words)
    counting = _ProgressLine("counting", None)
    chosen = call_store(settings, lambda store: choose(store, verb, filter, on_page=counting.show))
    counting.clear()
    if not chosen.jobs and not ctx.params["as_json"]:
        _print_nothing_found(settings, filter, chosen)
    return chosen


async def _choose_by_id(ctx: click.Context, store: Store, verb: Verb, words: Sequence[str]) -> Chosen:
    found = [await find_one(ctx, store, word) for word in dict.fromkeys(words)]
    jobs = tuple(FoundJob(job.id, job.queue, job.type, job.status, job.followed) for job in found)
    return Chosen(verb=verb, filter=" ".join(words), jobs=jobs)


def _print_nothing_found(settings: Settings, filter: Filter, chosen: Chosen) -> None:
    print_note(f"no job matches {chosen.filter}; nothing to {chosen.verb}")
    for remark in call_store(settings, lambda store: find_misspelt_names(store, filter)):
        print_note(remark)
    if filter.asks("status"):
        return
    others = call_store(settings, lambda store: store.search(filter, page=1_000))
    if others:
        states = Counter(job.status.value for job in others)
        summary = ", ".join(f"{count:,} {state}" for state, count in states.most_common())
        print_note(f"jobs in other states match: {summary}{' among the newest 1,000' if len(others) == 1_000 else ''}")


# Confirm


def confirm_jobs(ctx: click.Context, settings: Settings, verb: Verb, chosen: Chosen) -> None:
    """Show what would be changed, and end the command unless the user agrees."""
    from windlass.store import masked

    count, by_type = chosen.count, chosen.by_type()
    types = ", ".join(f"{number:,} {type}" for type, number in list(by_type.items())[:3])
    more = f", {format_count(len(by_type) - 3, 'more type')}" if len(by_type) > 3 else ""
    print_text(
        f"{verb} {format_count(count, 'job')} that match{'es' if count == 1 else ''} {chosen.filter}",
        style="bold",
        err=True,
    )
    print_text(f"  {types}{more}; in {masked(settings.url)}", err=True)
    confirm_count(ctx, count)


def confirm_count(ctx: click.Context, count: int) -> None:
    """Ask whether to go on with so many changes, and end the command unless the user agrees."""
    if not sys.stdin.isatty():
        print_note("nothing was changed: this is not a terminal, so the command cannot ask; add --yes")
        ctx.exit(2)
    wanted = str(count) if count > TYPED_FROM else "y"
    question = f"type {count} to go on: " if count > TYPED_FROM else "go on? [y/N] "
    answer, code = ask(question)
    if answer != wanted and not (wanted == "y" and answer == "yes"):
        print_note("nothing was changed")
        ctx.exit(code)


def ask(question: str) -> tuple[str, int]:
    """The answer, and the exit code if it means no; after Ctrl-C and Ctrl-D the next line begins below the question."""
    try:
        click.echo(question, err=True, nl=False)
        line = sys.stdin.readline()
    except KeyboardInterrupt:
        click.echo(err=True)
        return "", INTERRUPTED
    if not line.endswith("\n"):
        click.echo(err=True)
    return line.strip().lower().replace(",", ""), REFUSED


# Change


def change_jobs(settings: Settings, chosen: Chosen, *, as_json: bool) -> int:
    """Change all chosen jobs; returns the exit code. The result is printed even after an error or Ctrl-C."""
    change = BulkChange(chosen, settings.acting)
    result = BulkResult(change)
    code = INTERRUPTED
    try:
        if call_store(settings, lambda store: _operate(store, result)):
            code = REFUSED if change.refused else 0
    except (KeyboardInterrupt, CancelledError):
        pass
    finally:
        if as_json:
            print_json(_document(change))
        elif chosen.jobs:
            _print_result(result)
    if chosen.verb in (Verb.REPLAY, Verb.DISCARD):
        remove_broker_copies(settings, as_json, {job.id for job in chosen.jobs})
    return code


def remove_broker_copies(settings: Settings, as_json: bool, jobs: Collection[UUID]) -> None:
    """Remove the broker's copies of changed jobs."""
    if settings.broker is None:  # no store is opened for nothing
        return
    from windlass.methods.dead_letters import remove_copies

    removed, problem = call_store(settings, lambda store: remove_copies(store, settings, jobs))
    if problem is not None:
        print_note(
            f"the broker's copies of these jobs were not removed: {problem}; the store decides, so they do no harm: "
            "windlass dead discard --letters removes them"
        )
    elif removed and not as_json:
        print_detail(f"{format_count(removed, 'copy').replace('copys', 'copies')} removed from the broker", style="dim")


@dataclass
class BulkResult:
    """What has been done so far."""

    change: BulkChange
    children: bool = False  # whether children are cancelled together with the chosen jobs


async def _operate(store: Store, result: BulkResult) -> bool:
    """Change all chosen jobs, page by page; False when Ctrl-C came in between."""
    change = result.change
    chosen = change.chosen
    if chosen.verb is Verb.CANCEL:
        result.children = await _have_children(store, [job.id for job in chosen.jobs if job.followed])
    meter = _ProgressLine(chosen.verb.value, chosen.count)
    stop = _stop_at_interrupt(change)
    while await change.change_page(store):
        meter.show(change.total)
    meter.clear()
    return not stop.is_set()


def _stop_at_interrupt(change: BulkChange) -> asyncio.Event:
    """An event that the first Ctrl-C sets: statements under way finish, so that the printed count is exact. The second
    Ctrl-C cancels the command."""
    stop, task = asyncio.Event(), asyncio.current_task()
    assert task is not None

    def interrupt() -> None:
        if stop.is_set():
            task.cancel()
        stop.set()
        change.stop()

    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupt)
    return stop


async def _have_children(store: Store, jobs: Sequence[UUID]) -> bool:
    """Whether one of these jobs created a job that has not ended; of many jobs, only the first ones are checked."""
    for job in jobs[:ASKED]:
        going = [link.id for link in await store.links(job) if link.status not in (*FINAL, None)]
        if any(child.parent == job for child in (await store.find_many(going[:ASKED])).values()):
            return True
    return False


def _print_result(result: BulkResult) -> None:
    change = result.change
    verb = change.chosen.verb
    parts: list[str] = []
    if change.changed or not change.total:
        parts.append(f"{format_count(change.changed, 'job')} {ABOUT[verb][1]}")
    if change.asked:
        parts.append(f"{format_count(change.asked, 'running job')} asked to stop")
    if result.children and change.changed + change.asked:
        parts.append("and the jobs that they created")
    left = change.chosen.count - change.total
    if left:
        parts.append(f"interrupted: {left:,} left as they were")
    print_text(
        ", ".join(parts) or f"no job {ABOUT[verb][1]}", style="green" if not change.refused and not left else None
    )
    if change.refused:
        reasons = Counter("gone" if state is None else state.value for _, state in change.refused)
        summary = ", ".join(f"{count:,} {'are' if count > 1 else 'is'} {why}" for why, count in reasons.most_common())
        hint = "; to start it over: windlass jobs replay ID" if verb is Verb.RETRY and State.DEAD in reasons else ""
        print_text(
            f"{format_count(len(change.refused), 'job')} refused, since only {describe_sources(verb)} jobs can: "
            f"{summary}{hint}",
            style="yellow",
        )


def _document(change: BulkChange) -> dict[str, Any]:
    return {
        "verb": change.chosen.verb,
        "filter": change.chosen.filter,
        "matched": change.chosen.count,
        "changed": change.changed,
        "asked": change.asked,
        "refused": [{"id": id, "state": state} for id, state in change.refused],
    }


class _ProgressLine:
    """A line on a terminal's stderr that counts the jobs, shown from the first full page on."""

    def __init__(self, what: str, total: int | None) -> None:
        self._what = what
        self._total = total
        self._shown = False

    def show(self, count: int) -> None:
        if count < PAGE or not sys.stderr.isatty():
            return
        of = "" if self._total is None else f" of {self._total:,}"
        click.echo(f"\r\x1b[K{self._what}: {count:,}{of}", err=True, nl=False, color=True)
        self._shown = True

    def clear(self) -> None:
        if self._shown:
            click.echo("\r\x1b[K", err=True, nl=False, color=True)


COMMANDS = tuple(make_command(verb) for verb in (Verb.CANCEL, Verb.RETRY, Verb.REPLAY, Verb.RESUME, Verb.DISCARD))

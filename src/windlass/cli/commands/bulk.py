"""`windlass jobs cancel|retry|replay|resume|discard`: change one job, or all that match.

The jobs are chosen before the user is asked to confirm: the count is exact, and no other job is changed afterwards.
Each job is changed by its own conditional write; a job that has changed its state meanwhile is refused and counted.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio import CancelledError
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from windlass.cli.exit_codes import INTERRUPTED, REFUSED
from windlass.cli.parse.complete import complete_filter
from windlass.cli.parse.filter_args import FilterCommand, parse_filter, parse_ids
from windlass.cli.parse.find_jobs import find_misspelt_names, find_one, for_each_page
from windlass.cli.parse.store_option import call_store, load_settings, store_options
from windlass.cli.show.output import format_count, print_json, print_note, print_text
from windlass.model.state import FINAL, State, Verb, sources
from windlass.store.parts.messages import cancel_message
from windlass.store.parts.refusals import describe_sources

if TYPE_CHECKING:
    from windlass.config import Settings
    from windlass.model.filter import Filter
    from windlass.model.job import Job
    from windlass.store.protocol import Store

TYPED_FROM = 100  # jobs: above this, the user confirms by typing the number
PAGE = 200  # jobs between two updates of the progress line
ASKED = 20  # jobs and links per job that are checked for children
AT_ONCE = 4  # statements at a time: the store has only a few connections

ABOUT = {
    Verb.CANCEL: ("Cancel jobs: at once, or by asking the worker that runs them.", "cancelled"),
    Verb.RETRY: ("Make failed jobs due now.", "made due now"),
    Verb.REPLAY: ("Start dead jobs over: same id, attempts from zero.", "replayed"),
    Verb.RESUME: ("Bring cancelled jobs back.", "resumed"),
    Verb.DISCARD: ("Remove dead jobs for good.", "discarded"),
}


@dataclass
class ChosenJobs:
    """The jobs that the command changes, and the filter or ids that chose them."""

    text: str
    jobs: list[tuple[UUID, str]] = field(default_factory=list)  # id and queue
    followed: list[UUID] = field(default_factory=list)  # jobs that may have children
    cancelled: set[UUID] = field(default_factory=set)  # jobs that were cancelled before
    types: Counter[str] = field(default_factory=Counter)

    def add(self, jobs: Sequence[Job]) -> None:
        self.jobs += [(job.id, job.queue) for job in jobs]
        self.followed += [job.id for job in jobs if job.followed]
        self.cancelled.update(job.id for job in jobs if job.status is State.CANCELLED)
        self.types.update(job.type for job in jobs)


@dataclass
class BulkResult:
    """What has been done so far."""

    changed: int = 0
    asked: int = 0  # running jobs that were asked to cancel
    refused: list[tuple[UUID, str]] = field(default_factory=list)  # id and why
    children: bool = False  # whether children are cancelled together with the chosen jobs

    @property
    def total(self) -> int:
        return self.changed + self.asked + len(self.refused)


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
        chosen = _choose(ctx, settings, verb, words)
        named = bool(parse_ids(words)) and verb is not Verb.DISCARD
        if chosen.jobs and not (yes or named):
            _confirm(ctx, settings, verb, chosen)
        ctx.exit(_run(settings, verb, chosen, as_json=as_json))

    return command


def _help(verb: Verb) -> str:
    *others, last = sorted(_states(verb))
    allowed = f"{', '.join(others)} or {last}" if others else last
    return (
        f"{ABOUT[verb][0]}\n\nGive ids, or a FILTER (see: windlass jobs --help). Unless the filter names a state, "
        f"only jobs that are {allowed} are chosen. For a filter the command shows the exact count and asks; "
        f"above {TYPED_FROM} jobs you confirm by typing the number. Exit 1 when a job was refused."
    )


def _example(verb: Verb) -> str:
    return "queue:mail age:1h.."


# Choose


def _choose(ctx: click.Context, settings: Settings, verb: Verb, words: tuple[str, ...]) -> ChosenJobs:
    ids = parse_ids(words)
    if ids:
        return call_store(settings, lambda store: _choose_by_id(ctx, store, words))
    filter = parse_filter(words)
    narrowed = filter if filter.asks("status") else _narrow(filter, verb)
    chosen = call_store(settings, lambda store: _choose_matching(store, narrowed))
    if not chosen.jobs and not ctx.params["as_json"]:
        _print_nothing_found(settings, filter, narrowed, verb)
    return chosen


def _narrow(filter: Filter, verb: Verb) -> Filter:
    """Only jobs in a state that allows the verb: all others would be refused."""
    from windlass.model.filter import parse

    return parse(f"{filter.text} state:{','.join(sorted(_states(verb)))}")


def _states(verb: Verb) -> set[State]:
    """The states of jobs that the verb changes; a running job is asked to cancel."""
    return {*sources(verb), *((State.RUNNING,) if verb is Verb.CANCEL else ())}


async def _choose_by_id(ctx: click.Context, store: Store, words: Sequence[str]) -> ChosenJobs:
    chosen = ChosenJobs(" ".join(words))
    for word in dict.fromkeys(words):
        chosen.add([await find_one(ctx, store, word)])
    return chosen


async def _choose_matching(store: Store, filter: Filter) -> ChosenJobs:
    chosen = ChosenJobs(filter.text)
    counting = _ProgressLine("counting", None)

    def use(page: list[Job]) -> None:
        chosen.add(page)
        counting.show(len(chosen.jobs))

    await for_each_page(store, filter, use)
    counting.clear()
    return chosen


def _print_nothing_found(settings: Settings, filter: Filter, narrowed: Filter, verb: Verb) -> None:
    print_note(f"no job matches {narrowed.text}; nothing to {verb}")
    for remark in call_store(settings, lambda store: find_misspelt_names(store, filter)):
        print_note(remark)
    if narrowed is filter:
        return
    others = call_store(settings, lambda store: store.search(filter, page=1_000))
    if others:
        states = Counter(job.status.value for job in others)
        summary = ", ".join(f"{count:,} {state}" for state, count in states.most_common())
        print_note(f"jobs in other states match: {summary}{' among the newest 1,000' if len(others) == 1_000 else ''}")


# Confirm


def _confirm(ctx: click.Context, settings: Settings, verb: Verb, chosen: ChosenJobs) -> None:
    """Show what would be changed, and end the command unless the user agrees."""
    from windlass.store import masked

    count = len(chosen.jobs)
    types = ", ".join(f"{number:,} {type}" for type, number in chosen.types.most_common(3))
    more = f", {format_count(len(chosen.types) - 3, 'more type')}" if len(chosen.types) > 3 else ""
    print_text(
        f"{verb} {format_count(count, 'job')} that match{'es' if count == 1 else ''} {chosen.text}",
        style="bold",
        err=True,
    )
    print_text(f"  {types}{more}; in {masked(settings.url)}", err=True)
    if not sys.stdin.isatty():
        print_note("nothing was changed: this is not a terminal, so the command cannot ask; add --yes")
        ctx.exit(2)
    wanted = str(count) if count > TYPED_FROM else "y"
    question = f"type {count} to go on: " if count > TYPED_FROM else "go on? [y/N] "
    answer, code = _ask(question)
    if answer != wanted and not (wanted == "y" and answer == "yes"):
        print_note("nothing was changed")
        ctx.exit(code)


def _ask(question: str) -> tuple[str, int]:
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


def _run(settings: Settings, verb: Verb, chosen: ChosenJobs, *, as_json: bool) -> int:
    """Change all chosen jobs; returns the exit code. The result is printed even after an error or Ctrl-C."""
    result = BulkResult()
    code = INTERRUPTED
    try:
        if call_store(settings, lambda store: _operate(store, verb, chosen, result, settings.acting)):
            code = REFUSED if result.refused else 0
    except (KeyboardInterrupt, CancelledError):
        pass
    finally:
        if as_json:
            print_json(_document(verb, chosen, result))
        elif chosen.jobs:
            _print_result(verb, chosen, result)
    return code


async def _operate(store: Store, verb: Verb, chosen: ChosenJobs, result: BulkResult, actor: str) -> bool:
    """Change all chosen jobs, page by page; False when Ctrl-C came in between."""
    jobs, turn = chosen.jobs, JobChanger(store, verb, chosen, result, actor)
    result.children = verb is Verb.CANCEL and await _have_children(store, chosen.followed)
    meter = _ProgressLine(verb.value, len(jobs))
    stop = _stop_at_interrupt()
    for start in range(0, len(jobs), PAGE):
        page = iter(jobs[start : start + PAGE])
        due: set[str] = set()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):  # the tasks share the iterator
                    group.create_task(turn(page, due, stop))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors  # the user reads one error when the database went away
        for queue in due:
            await store.wake(queue)
        meter.show(result.total)
        if stop.is_set():
            break
    meter.clear()
    return not stop.is_set()


def _stop_at_interrupt() -> asyncio.Event:
    """An event that the first Ctrl-C sets: statements under way finish, so that the printed count is exact. The second
    Ctrl-C cancels the command."""
    stop, task = asyncio.Event(), asyncio.current_task()
    assert task is not None

    def interrupt() -> None:
        if stop.is_set():
            task.cancel()
        stop.set()

    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupt)
    return stop


async def _have_children(store: Store, jobs: Sequence[UUID]) -> bool:
    """Whether one of these jobs created a job that has not ended; of many jobs, only the first ones are checked."""
    for job in jobs[:ASKED]:
        going = [link.id for link in await store.links(job) if link.status not in (*FINAL, None)]
        if any(child.parent == job for child in (await store.find_many(going[:ASKED])).values()):
            return True
    return False


@dataclass(frozen=True)
class JobChanger:
    """Changes one job after another; several tasks share a page."""

    store: Store
    verb: Verb
    chosen: ChosenJobs
    result: BulkResult
    actor: str

    async def __call__(self, page: Iterator[tuple[UUID, str]], due: set[str], stop: asyncio.Event) -> None:
        for id, queue in page:
            if stop.is_set():
                return
            state = await self._change(id)
            if state is State.QUEUED:
                due.add(queue)

    async def _change(self, id: UUID) -> State | None:
        from windlass.errors import JobNotFound, TransitionRefused

        try:
            state = await self.store.operate(self.verb, id, actor=self.actor)
        except (JobNotFound, TransitionRefused):
            found = await self.store.find(id)
            if found is not None and self._was_cancelled_with_parent(found):
                self.result.changed += 1
            else:
                self.result.refused.append((id, "gone" if found is None else found.status.value))
            return None
        if state is State.RUNNING:
            self.result.asked += 1
            await self.store.wake(cancel_message(id))
        else:
            self.result.changed += 1
        return state

    def _was_cancelled_with_parent(self, job: Job) -> bool:
        """Whether the job was cancelled together with its parent, which was chosen, too, and changed before it."""
        cancelled = self.verb is Verb.CANCEL and job.status is State.CANCELLED
        return cancelled and job.parent is not None and job.id not in self.chosen.cancelled


def _print_result(verb: Verb, chosen: ChosenJobs, result: BulkResult) -> None:
    parts: list[str] = []
    if result.changed or not result.total:
        parts.append(f"{format_count(result.changed, 'job')} {ABOUT[verb][1]}")
    if result.asked:
        parts.append(f"{format_count(result.asked, 'running job')} asked to stop")
    if result.children and result.changed + result.asked:
        parts.append("and the jobs that they created")
    left = len(chosen.jobs) - result.total
    if left:
        parts.append(f"interrupted: {left:,} left as they were")
    print_text(
        ", ".join(parts) or f"no job {ABOUT[verb][1]}", style="green" if not result.refused and not left else None
    )
    if result.refused:
        reasons = Counter(why for _, why in result.refused)
        summary = ", ".join(f"{count:,} {'are' if count > 1 else 'is'} {why}" for why, count in reasons.most_common())
        hint = "; to start it over: windlass jobs replay ID" if verb is Verb.RETRY and State.DEAD in reasons else ""
        print_text(
            f"{format_count(len(result.refused), 'job')} refused, since only {describe_sources(verb)} jobs can: "
            f"{summary}{hint}",
            style="yellow",
        )


def _document(verb: Verb, chosen: ChosenJobs, result: BulkResult) -> dict[str, Any]:
    return {
        "verb": verb,
        "filter": chosen.text,
        "matched": len(chosen.jobs),
        "changed": result.changed,
        "asked": result.asked,
        "refused": [{"id": id, "state": None if why == "gone" else why} for id, why in result.refused],
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

"""`windlass jobs cancel|retry|replay|resume|discard`: one job, or all that match.

What matches is fixed before the question is asked: its count is exact, and what is changed afterwards is that and no
more. Each job is changed by a conditional write of its own; one that has moved on meanwhile is refused and counted.
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

from windlass.cli.parse.filter_args import Filtering, filter_of, ids_of
from windlass.cli.parse.find_jobs import each_page, explain_ambiguous, find
from windlass.cli.parse.store_option import app_option, ask, settings_of, url_option
from windlass.cli.show.output import as_json, note, plural, print_json, say
from windlass.model.state import FINAL, State, Verb, sources
from windlass.store.parts.messages import cancel_message

if TYPE_CHECKING:
    from windlass.config import Settings
    from windlass.model.filter import Filter
    from windlass.model.job import Job
    from windlass.store.protocol import Store

TYPED_FROM = 100  # jobs: above, the number has to be typed
PAGE = 200  # jobs between two looks at the progress
ASKED = 20  # jobs that are asked after their children
AT_ONCE = 4  # statements: the store has a few connections
REFUSED = 1
INTERRUPTED = 130

ABOUT = {
    Verb.CANCEL: ("Cancel jobs: at once, or by asking the worker that runs them.", "cancelled"),
    Verb.RETRY: ("Make failed jobs due now.", "made due now"),
    Verb.REPLAY: ("Let dead jobs start over: same id, attempts from zero.", "replayed"),
    Verb.RESUME: ("Bring cancelled jobs back.", "resumed"),
    Verb.DISCARD: ("Remove dead jobs for good.", "discarded"),
}


@dataclass
class Chosen:
    """The jobs that are meant, and in which words."""

    text: str
    jobs: list[tuple[UUID, str]] = field(default_factory=list)  # id and queue
    followed: list[UUID] = field(default_factory=list)  # those that may have children
    cancelled: set[UUID] = field(default_factory=set)  # those that were so before
    types: Counter[str] = field(default_factory=Counter)

    def add(self, jobs: Sequence[Job]) -> None:
        self.jobs += [(job.id, job.queue) for job in jobs]
        self.followed += [job.id for job in jobs if job.followed]
        self.cancelled.update(job.id for job in jobs if job.status is State.CANCELLED)
        self.types.update(job.type for job in jobs)


@dataclass
class Done:
    """How far it came."""

    changed: int = 0
    asked: int = 0  # running jobs whose worker has been asked to cancel
    refused: list[tuple[UUID, str]] = field(default_factory=list)  # id and why
    children: bool = False  # whether jobs went along that were not named

    @property
    def total(self) -> int:
        return self.changed + self.asked + len(self.refused)


def make(verb: Verb) -> click.Command:
    """The command of a verb."""

    @click.command(verb.value, cls=Filtering, short_help=ABOUT[verb][0], help=_help(verb))
    @click.argument("words", nargs=-1, metavar="FILTER… | ID…")
    @click.option("-y", "--yes", is_flag=True, help="Do not ask.")
    @click.option("--all", "everything", is_flag=True, help="Every job that can be; instead of a filter.")
    @app_option
    @url_option
    @as_json
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
            what = "--all and a filter both say which; give one" if words else "say which: ids, a filter, or --all"
            raise click.UsageError(f"{what}, for example: windlass jobs {verb} {_example(verb)}")
        settings = settings_of(url, app)
        chosen = _choose(ctx, settings, verb, words)
        named = bool(ids_of(words)) and verb is not Verb.DISCARD
        if chosen.jobs and not (yes or named):
            _confirm(ctx, settings, verb, chosen)
        ctx.exit(_run(settings, verb, chosen, as_json=as_json))

    return command


def _help(verb: Verb) -> str:
    allowed = " or ".join(sorted(sources(verb)))
    running = ", or running" if verb is Verb.CANCEL else ""
    return (
        f"{ABOUT[verb][0]}\n\nGive ids, or a FILTER (see: windlass jobs --help). Without a state in it, only jobs that "
        f"are {allowed}{running} are taken. A filter is answered with the exact count and a question; above "
        f"{TYPED_FROM} jobs the number has to be typed. Exit 1 when a job was refused."
    )


def _example(verb: Verb) -> str:
    return "queue:mail age:>1h"


# Choosing


def _choose(ctx: click.Context, settings: Settings, verb: Verb, words: tuple[str, ...]) -> Chosen:
    ids = ids_of(words)
    if ids:
        return ask(settings, lambda store: _named(ctx, store, words))
    filter = filter_of(words)
    narrowed = filter if filter.asks("status") else _narrow(filter, verb)
    chosen = ask(settings, lambda store: _matching(store, narrowed))
    if not chosen.jobs and not ctx.params["as_json"]:
        _explain_nothing(settings, filter, narrowed, verb)
    return chosen


def _narrow(filter: Filter, verb: Verb) -> Filter:
    """Only jobs in a state that allows it: the others could only be refused."""
    from windlass.model.filter import parse

    states = {*sources(verb), *((State.RUNNING,) if verb is Verb.CANCEL else ())}
    return parse(f"{filter.text} state:{','.join(sorted(states))}")


async def _named(ctx: click.Context, store: Store, words: Sequence[str]) -> Chosen:
    chosen = Chosen(" ".join(words))
    for word in dict.fromkeys(words):
        found = await find(store, word)
        if len(found) > 1:
            ctx.exit(explain_ambiguous(word, found))
        chosen.add(found)
    return chosen


async def _matching(store: Store, filter: Filter) -> Chosen:
    chosen = Chosen(filter.text)
    counting = _Meter("counting", None)

    def use(page: list[Job]) -> None:
        chosen.add(page)
        counting.show(len(chosen.jobs))

    await each_page(store, filter, use)
    counting.clear()
    return chosen


def _explain_nothing(settings: Settings, filter: Filter, narrowed: Filter, verb: Verb) -> None:
    note(f"no job matches {narrowed.text}; nothing to {verb}")
    if narrowed is filter:
        return
    others = ask(settings, lambda store: store.search(filter, page=1_000))
    if others:
        states = Counter(job.status.value for job in others)
        told = ", ".join(f"{count:,} {state}" for state, count in states.most_common())
        note(f"in other states there are: {told}{' among the newest 1,000' if len(others) == 1_000 else ''}")


# Asking


def _confirm(ctx: click.Context, settings: Settings, verb: Verb, chosen: Chosen) -> None:
    """Say what would happen, and let only a clear yes pass."""
    from windlass.store import masked

    count = len(chosen.jobs)
    types = ", ".join(f"{number:,} {type}" for type, number in chosen.types.most_common(3))
    more = f", {len(chosen.types) - 3} more types" if len(chosen.types) > 3 else ""
    say(f"{verb} {plural(count, 'job')} that match{'es' if count == 1 else ''} {chosen.text}", style="bold", err=True)
    say(f"  {types}{more}; in {masked(settings.url)}", err=True)
    if not sys.stdin.isatty():
        note("nothing was changed: this is not a terminal, so nobody can say yes; add --yes")
        ctx.exit(2)
    wanted = str(count) if count > TYPED_FROM else "y"
    question = f"type {count} to go on: " if count > TYPED_FROM else "go on? [y/N] "
    click.echo(question, err=True, nl=False)
    answer = sys.stdin.readline().strip().lower().replace(",", "")
    if answer != wanted and not (wanted == "y" and answer == "yes"):
        note("nothing was changed")
        ctx.exit(REFUSED)


# Doing


def _run(settings: Settings, verb: Verb, chosen: Chosen, *, as_json: bool) -> int:
    """Operate on all of them; the answer is the exit code. Whatever ends it, what was done is told."""
    done = Done()
    code = INTERRUPTED
    try:
        if ask(settings, lambda store: _operate(store, verb, chosen, done, settings.acting)):
            code = REFUSED if done.refused else 0
    except (KeyboardInterrupt, CancelledError):
        pass
    finally:
        if as_json:
            print_json(_document(verb, chosen, done))
        elif chosen.jobs:
            _report(verb, chosen, done)
    return code


async def _operate(store: Store, verb: Verb, chosen: Chosen, done: Done, actor: str) -> bool:
    """All of them, page by page; False when Ctrl-C came in between."""
    jobs, turn = chosen.jobs, Turns(store, verb, chosen, done, actor)
    done.children = verb is Verb.CANCEL and await _have_children(store, chosen.followed)
    meter = _Meter(verb.value, len(jobs))
    stop = _stop_at_interrupt()
    for start in range(0, len(jobs), PAGE):
        page = iter(jobs[start : start + PAGE])
        due: set[str] = set()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):  # they share the iterator
                    group.create_task(turn(page, due, stop))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors  # a database that went away is one line for a person
        for queue in due:
            await store.wake(queue)
        meter.show(done.total)
        if stop.is_set():
            break
    meter.clear()
    return not stop.is_set()


def _stop_at_interrupt() -> asyncio.Event:
    """Set by the first Ctrl-C: what is on its way is finished, so that the count told is exact. The second one ends."""
    stop, task = asyncio.Event(), asyncio.current_task()
    assert task is not None

    def interrupt() -> None:
        if stop.is_set():
            task.cancel()
        stop.set()

    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupt)
    return stop


async def _have_children(store: Store, jobs: Sequence[UUID]) -> bool:
    """Whether one of these created a job that has not ended; of many, the first ones are asked."""
    for job in jobs[:ASKED]:
        going = [link.id for link in await store.links(job) if link.status not in (*FINAL, None)]
        if any(child.parent == job for child in (await store.find_many(going[:ASKED])).values()):
            return True
    return False


@dataclass(frozen=True)
class Turns:
    """Changes one job after another; several of these share a page."""

    store: Store
    verb: Verb
    chosen: Chosen
    done: Done
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
            if found is not None and self._went_along(found):
                self.done.changed += 1
            else:
                self.done.refused.append((id, "gone" if found is None else found.status.value))
            return None
        if state is State.RUNNING:
            self.done.asked += 1
            await self.store.wake(cancel_message(id))
        else:
            self.done.changed += 1
        return state

    def _went_along(self, job: Job) -> bool:
        """A child that was chosen together with its parent may be cancelled by that one's turn."""
        cancelled = self.verb is Verb.CANCEL and job.status is State.CANCELLED
        return cancelled and job.parent is not None and job.id not in self.chosen.cancelled


def _report(verb: Verb, chosen: Chosen, done: Done) -> None:
    parts: list[str] = []
    if done.changed or not done.total:
        parts.append(f"{plural(done.changed, 'job')} {ABOUT[verb][1]}")
    if done.asked:
        parts.append(f"{plural(done.asked, 'running job')} asked to stop")
    if done.children and done.changed + done.asked:
        parts.append("and the jobs that they created with them")
    left = len(chosen.jobs) - done.total
    if left:
        parts.append(f"interrupted: {left:,} left as they were")
    say(", ".join(parts) or f"no job {ABOUT[verb][1]}", style="green" if not done.refused and not left else None)
    if done.refused:
        allowed = " or ".join(sorted(sources(verb)))
        reasons = Counter(why for _, why in done.refused)
        told = ", ".join(f"{count:,} {'are' if count > 1 else 'is'} {why}" for why, count in reasons.most_common())
        say(f"{plural(len(done.refused), 'job')} refused, since only {allowed} jobs can: {told}", style="yellow")


def _document(verb: Verb, chosen: Chosen, done: Done) -> dict[str, Any]:
    return {
        "verb": verb,
        "filter": chosen.text,
        "matched": len(chosen.jobs),
        "changed": done.changed,
        "asked": done.asked,
        "refused": [{"id": id, "state": None if why == "gone" else why} for id, why in done.refused],
    }


class _Meter:
    """A line on stderr that counts up, for a person, once there is something to wait for."""

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


COMMANDS = tuple(make(verb) for verb in (Verb.CANCEL, Verb.RETRY, Verb.REPLAY, Verb.RESUME, Verb.DISCARD))

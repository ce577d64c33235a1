"""What `app.schedule(…)` makes: a declaration for workers, and a handle for the schedule.

Each method of the handle has an awaited form: `nightly.pause()` blocks, `await nightly.apause()` does not. The command
line uses the same functions: a wrong schedule or edit is refused here.
"""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar, Unpack
from zoneinfo import ZoneInfo

from windlass.blocking import blocking
from windlass.client import Call, Client
from windlass.clock import Duration, format_span, seconds
from windlass.config import suggest
from windlass.declare.jobtype import ConfiguredJob, TypedCall
from windlass.declare.registry import PRIORITIES
from windlass.errors import ConfigError, ScheduleError, ScheduleNotFound, UnknownType
from windlass.handles.job import JobHandle
from windlass.methods.admin import checked_reason
from windlass.model.schedule import CatchUp, Declaration, Edit, Overlap, ScheduleRow, TickRow
from windlass.names import name_problem
from windlass.policy.cron import parse_timing, upcoming
from windlass.store.parts.schedules import not_found

if TYPE_CHECKING:
    from windlass.methods.reads import Reads
    from windlass.store.protocol import Store

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

FIRES_SHOWN = 5
MOST_SHOWN = 100_000  # fires, or ticks, in one list
REFUSED_OPTIONS = ("delay", "run_at", "idempotency_key", "conn")
"""Options of a call that a schedule refuses: the tick sets the time, and each tick is another request."""


class Change(TypedDict, total=False):
    """The fields that can be edited at run time."""

    cron: str | None
    every: Duration | None
    at: datetime | None
    tz: str | ZoneInfo | None
    catch_up: Literal["skip", "one", "all"] | None
    overlap: Literal["allow", "skip", "cancel"] | None
    queue: str | None
    priority: int | None


class Schedule(Generic[R_co]):
    """One schedule, by its name: what `app.schedule(…)` and `app.find_schedule(name)` return.

    Changes are written to the store and survive a deploy. Each name has an awaited form: `await nightly.afire()`.
    """

    _noun = "schedule"

    def __init__(self, app: Reads, name: str, declaration: Declaration | None) -> None:
        self.name = name
        """The name in the store, and on the command line: `windlass schedules show NAME`."""
        self._app = app
        self._declaration = declaration  # None: another program declares it

    def __repr__(self) -> str:
        return f"<schedule {self.name!r}>"

    # Reading

    async def arecord(self) -> ScheduleRow:
        """What is declared and edited, whether it is paused, and when it ticks next: `nightly.record().next_at`."""
        return await self._ask(self._find)

    async def aupcoming(self, count: int = FIRES_SHOWN) -> list[datetime]:
        """The times of its next ticks: `nightly.upcoming(3)`.

        Ticks that are due already are left out. While the schedule is paused, these are the times of the ticks that it
        would have.
        """
        self._check_count("upcoming", count)
        return upcoming(await self._ask(self._find), count)

    async def aticks(self, count: int = 50) -> list[TickRow]:
        """What became of its last ticks, the newest first: `nightly.ticks(10)[0].outcome`."""
        self._check_count("ticks", count)
        return await self._ask(lambda store: store.ticks(self.name, page=count))

    record = blocking(arecord)
    upcoming = blocking(aupcoming)
    ticks = blocking(aticks)

    # Operating

    async def apause(self, reason: str | None = None) -> bool:
        """Let no tick fire until it is resumed: `nightly.pause("year-end closing")`.

        A deploy does not resume it. False: it was paused already.
        """
        reason = checked_reason(reason)
        return await self._ask(lambda store: store.pause_schedule(self.name, reason=reason, actor=self._actor))

    async def aresume(self) -> bool:
        """Go on with the next tick from now: `nightly.resume()`. The ticks of the pause are gone.

        False: it was not paused.
        """
        return await self._ask(lambda store: store.resume_schedule(self.name, actor=self._actor))

    async def aedit(self, **change: Unpack[Change]) -> bool:
        """Override what the code declares, until `reset()`: `nightly.edit(cron="0 4 * * *")`. False: no change."""
        edit = edit_of(f"schedule {self.name!r}", change)
        return await self._ask(lambda store: store.edit_schedule(self.name, edit, actor=self._actor))

    async def areset(self) -> bool:
        """Go back to what the code declares: `nightly.reset()`. False where nothing was edited."""
        return await self._ask(lambda store: store.reset_schedule(self.name, actor=self._actor))

    async def afire(self) -> JobHandle[R_co]:
        """Enqueue a job of it now, paused or not: `job = nightly.fire()`. Its ticks do not change."""
        job, existing = await self._ask(lambda store: store.fire_schedule(self.name, actor=self._actor))
        call = None if self._declaration is None else self._declaration.call
        definition = call.definition if isinstance(call, Call) else None
        return JobHandle(self._client, job, definition, existing=existing)

    async def aforget(self, *, force: bool = False) -> None:
        """Remove a schedule that no program declares any more: `app.find_schedule("nightly").forget()`.

        Its edits and its pause go with it, and its jobs stay. A worker of a program that declares it would bring it
        back: while a worker is alive and the schedule is not late, only `force=True` removes it. Raises ScheduleError.
        """
        await self._client.aask(lambda store: forget(store, self.name, force=force, actor=self._actor))

    pause = blocking(apause)
    resume = blocking(aresume)
    edit = blocking(aedit)
    reset = blocking(areset)
    fire = blocking(afire)
    forget = blocking(aforget)

    # What they ask the store

    async def _find(self, store: Store) -> ScheduleRow:
        return await find(store, self.name)

    def _check_count(self, call: str, count: object) -> None:
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_SHOWN:
            raise ScheduleError(
                f"schedule {self.name!r}: {call}({count!r}): give a whole number from 0 to {MOST_SHOWN:,}"
            )

    @property
    def _client(self) -> Client:
        return self._app._client

    @property
    def _actor(self) -> str:
        return self._app.settings.acting

    async def _ask(self, question: Callable[[Store], Awaitable[T]]) -> T:
        """Ask the store; a schedule of this program that no worker has declared yet is declared by this call."""

        async def ask(store: Store) -> T:
            try:
                return await question(store)
            except ScheduleNotFound:
                if self._declaration is None:
                    raise
                await store.declare_schedules({self.name: self._declaration.declared(self._app.settings)})
                return await question(store)

        return await self._client.aask(ask)


async def find(store: Store, name: str) -> ScheduleRow:
    """The schedule of this name; raises ScheduleNotFound."""
    rows = await store.schedules(name)
    if not rows:
        raise not_found(name, [row.name for row in await store.schedules()])
    return rows[0]


async def forget(store: Store, name: str, *, force: bool, actor: str) -> None:
    """Delete a schedule; without `force` only where no program seems to declare it. Raises ScheduleError.

    The store does not know which program declares a schedule. One that ticks in time while a worker is alive may still
    be declared.
    """
    row = await find(store, name)
    if not force and row.late is None and any(worker.alive for worker in await store.workers()):
        fired = None if row.last_at is None else format_span((row.now - row.last_at).total_seconds())
        evidence = "it is not late" if fired is None else f"it fired {fired} ago"
        quoted = shlex.quote(name)
        raise ScheduleError(
            f"schedule {name!r} is not forgotten: {evidence} and a worker is alive, so a program may still declare "
            "it,\n  and would bring it back when its next worker starts\n"
            f"  → windlass schedules pause {quoted}   to stop it, or, if no program declares it any more:\n"
            f"  → windlass schedules forget {quoted} --yes"
        )
    await store.forget_schedule(name, actor=actor)


# Checks


def declare(
    app: Reads, name: str, call: TypedCall[R], *, catch_up: str, overlap: str, **when: Any
) -> tuple[Declaration, Schedule[R]]:
    """A checked declaration, and the handle for its schedule."""
    problem = name_problem(name)
    if problem is not None:
        raise ScheduleError(f"the name of a schedule {problem}")
    what = f"schedule {name!r}"
    _check_call(app, what, call)
    declaration = Declaration(
        name=name,
        timing=parse_timing(what, **when),
        catch_up=_choice(what, "catch_up=", catch_up, CatchUp),
        overlap=_choice(what, "overlap=", overlap, Overlap),
        call=call,
    )
    return declaration, Schedule(app, name, declaration)


def _check_call(app: Reads, what: str, call: object) -> None:
    if isinstance(call, str):
        _require(app, what, call)
    if isinstance(call, (str, ConfiguredJob)):
        name = call if isinstance(call, str) else call._definition.signature.name
        raise ScheduleError(f"{what} is given a job type; give it a call, with its arguments: {name}.call(…)")
    if not isinstance(call, Call):
        raise ScheduleError(f"{what} is given {type(call).__name__}; give it a call of a job type, as report.call(…)")
    if call.registry is not app._registry:
        raise UnknownType(f"{what}: job type {call.definition.type!r} is another app's; declare it with this one")
    for option in REFUSED_OPTIONS:
        if getattr(call.options, option) is not None:
            raise ScheduleError(f"{what}: its call has {option}=, which a tick cannot have; leave it out")


def _require(app: Reads, what: str, type: str) -> None:
    try:
        app._registry.require(type)  # its error suggests a similar name
    except UnknownType as error:
        raise UnknownType(f"{what}: {error}") from None


def edit_of(what: str, change: Change, *, flags: bool = False) -> Edit:
    """A checked edit; the store checks it against the schedule when it writes the edit.

    With `flags`, errors name the fields as they are typed after a command.
    """

    def spelled(name: str) -> str:
        return f"--{name.replace('_', '-')} " if flags else f"{name}="

    for name in change:
        if name not in Change.__annotations__:
            raise ScheduleError(f"{what}: unknown field {name!r}{suggest(name, Change.__annotations__)}")
    given: dict[str, Any] = {name: value for name, value in change.items() if value is not None}
    if not given:
        names = (spelled(name).rstrip("= ") for name in Change.__annotations__)
        raise ScheduleError(f"{what}: nothing to edit; there are: {', '.join(names)}")
    if len({"cron", "every", "at"} & set(given)) > 1:
        raise ScheduleError(f"{what}: cron, every and at each set the time; give one of them")
    if "catch_up" in given:
        given["catch_up"] = _choice(what, spelled("catch_up"), given["catch_up"], CatchUp)
    if "overlap" in given:
        given["overlap"] = _choice(what, spelled("overlap"), given["overlap"], Overlap)
    if isinstance(given.get("tz"), ZoneInfo):
        given["tz"] = given["tz"].key
    if "every" in given:
        given["every"] = _seconds(what, given["every"])
    problem = name_problem(given["queue"]) if "queue" in given else None
    if problem is not None:
        raise ScheduleError(f"{what}: queue {problem}")
    priority = given.get("priority", 0)
    if isinstance(priority, bool) or not isinstance(priority, int) or priority not in PRIORITIES:
        lowest, highest = PRIORITIES.start, PRIORITIES.stop - 1
        raise ScheduleError(
            f"{what}: {spelled('priority')}{priority!r} is not a whole number from {lowest} to {highest}"
        )
    return Edit(**given)


def _seconds(what: str, every: Duration) -> float:
    try:
        return seconds(every, what=f"{what}: every")
    except ConfigError as error:
        raise ScheduleError(str(error)) from None


C = TypeVar("C", CatchUp, Overlap)


def _choice(what: str, name: str, given: str, kind: type[C]) -> C:
    try:
        return kind(given)
    except ValueError:
        raise ScheduleError(f"{what}: {name}{given!r}; there are: {', '.join(kind)}") from None

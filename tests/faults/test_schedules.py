"""Schedules while their workers freeze, thaw and die: every tick fires, and none of them twice."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime, timedelta

from windlass import State
from windlass.model.filter import parse
from windlass.model.job import Job
from windlass.model.schedule import ScheduleRow, TickOutcome, TickRow

from .process import Process
from .rig import LEASE, FaultLab, scaled

TICKS = scaled(100, 200)
TICKS_UNDER_FIRE = scaled(50, 800)
STEP = 0.1  # seconds from tick to tick
EVERY = {"FAULT_EVERY": f"{STEP}s"}
PAGE = 10_000


class Timetable:
    """What the store and the ledger have of the one schedule in the lab."""

    def __init__(self, lab: FaultLab) -> None:
        self._lab = lab

    def row(self) -> ScheduleRow | None:
        rows = self._lab._app.schedules()
        return rows[0] if rows else None

    def begins(self) -> datetime:
        """The first tick there was to be."""
        self._lab.until(lambda: bool(self.ticks()), "the first tick fired")
        return min(tick.at for tick in self.ticks())

    def passed(self, begin: datetime, ticks: int) -> bool:
        """Whether the schedule has moved on from so many."""
        row = self.row()
        return row is not None and row.next_at is not None and row.next_at >= begin + ticks * timedelta(seconds=STEP)

    def ticks(self) -> list[TickRow]:
        return self._lab._app._client.ask(lambda store: store.ticks("ticks", page=PAGE))

    def jobs(self) -> list[Job]:
        return self._lab._app._client.ask(lambda store: store.search(parse("type:ticked"), page=PAGE))

    def pause(self) -> None:
        self._lab._app._client.ask(lambda store: store.pause_schedule("ticks"))

    def check(self, begin: datetime, *, least: int) -> int:
        """Each tick from the first to the last has one row, one job, and one job in the ledger outside."""
        ticks, jobs = self.ticks(), self.jobs()
        row = self.row()
        assert row is not None
        assert row.next_at is not None
        wanted = [
            begin + n * timedelta(seconds=STEP) for n in range(round((row.next_at - begin).total_seconds() / STEP))
        ]
        assert len(wanted) >= least
        assert Counter(job.run_at for job in jobs) == Counter(wanted)
        assert Counter(tick.at for tick in ticks) == Counter(wanted)
        assert {tick.outcome for tick in ticks} == {TickOutcome.FIRED}
        assert {tick.job for tick in ticks} == {job.id for job in jobs}
        assert {entry.job for entry in self._lab.ledger() if entry.event == "begin"} >= {job.id for job in jobs}
        return len(wanted)


def test_ticks_with_workers_that_freeze_by_turns(lab: FaultLab) -> None:
    timetable = Timetable(lab)
    workers = [lab.ready(**EVERY) for _ in range(2)]
    begin, began, frozen = timetable.begins(), time.monotonic(), 0

    while not timetable.passed(begin, TICKS):
        victim = workers[frozen % 2]
        lab.freeze(victim)
        if frozen % 4 == 3:  # …and once in a while no worker runs
            lab.freeze(workers[(frozen + 1) % 2])
        pause(lab.random.uniform(0.2, 1.0 if frozen % 5 else LEASE + 0.5))
        for worker in workers:
            worker.thaw()
        frozen += 1
        pause(lab.random.uniform(0.0, 0.3))
    timetable.pause()
    lab.until_final(len(timetable.jobs()))

    ticks = timetable.check(begin, least=TICKS)
    assert lab.counts() == {State.SUCCEEDED: ticks}
    print(f"{ticks} ticks, {frozen} times frozen, {time.monotonic() - began:.1f} s")


def test_no_tick_is_lost_with_workers_that_are_killed(lab: FaultLab) -> None:
    timetable = Timetable(lab)
    # They die by themselves as well: in the middle of firing, when the schedule is moved and nothing is enqueued yet.
    environment = {**EVERY, "WINDLASS_FAILPOINTS": "tick.moved=kill@0.05", "WINDLASS_MAX_CRASHES": "1000"}
    workers = [lab.start(**environment) for _ in range(2)]
    deaths = 0
    begin: datetime | None = None

    def over() -> bool:
        nonlocal deaths, begin
        for place, worker in enumerate(workers):
            if worker.ended() is not None:
                deaths += 1
                workers[place] = lab.start(**environment)
        if begin is None and (ticks := timetable.ticks()):
            begin = min(tick.at for tick in ticks)
        return begin is not None and timetable.passed(begin, TICKS_UNDER_FIRE) and deaths >= 2

    lab.until(over, f"{TICKS_UNDER_FIRE} ticks have passed", within=180)
    assert begin is not None
    timetable.pause()
    for worker in workers:
        worker.kill()
    lab.ready(**EVERY)
    lab.until_final(len(timetable.jobs()))

    ticks = timetable.check(begin, least=TICKS_UNDER_FIRE)
    assert lab.counts() == {State.SUCCEEDED: ticks}
    print(f"{ticks} ticks, {deaths} deaths")


def test_a_worker_that_freezes_in_the_middle_of_firing_keeps_its_schedule_for_seconds_only(
    postgres_lab: FaultLab,
) -> None:
    lab, timetable = postgres_lab, Timetable(postgres_lab)  # on SQLite it would hold the whole file
    zombie = lab.start(**EVERY, WINDLASS_FAILPOINTS="tick.moved=stop")
    lab.until(lambda: zombie.frozen, "the zombie stands still with a tick that it has moved on from")
    row = timetable.row()
    assert row is not None
    begin = row.next_at  # as others see it: nothing is committed
    assert begin is not None

    lab.ready(**EVERY)
    lab.until(lambda: timetable.passed(begin, 20), "the successor caught up")
    thawed(lab, zombie)
    timetable.pause()
    lab.until_final(len(timetable.jobs()))

    timetable.check(begin, least=20)


def thawed(lab: FaultLab, zombie: Process) -> None:
    """Until it has found out that its transaction is gone; it stops again in its next one, and must not stay there."""
    zombie.thaw()
    lab.until(lambda: "idle-in-transaction timeout" in zombie.output(), "the zombie lost its transaction")
    zombie.kill()


def pause(seconds: float) -> None:
    """How long a worker stands still is what the story is about; nothing is decided by it."""
    time.sleep(seconds)

"""What may run, while processes die: a limit that is never passed, a gate that holds, a tenant that floods."""

from __future__ import annotations

import time

from windlass import State
from windlass.model.admission import GateKind, GateState

from .process import Process, state
from .rig import Entry, FaultLab, scaled

PROCESSES = scaled(6, 12)
MOST = 2  # see program.counted
KEY = ("key",)
CLOSED = 3.0  # seconds for which a gate is watched that is closed
VISITS = 20  # jobs of a tenant with little to do
MOST_PASSED = 150  # of a flood, while one of them waits: what was claimed before it came, and what a poll brings


# A limit


def test_a_limit_holds_while_its_holders_are_killed(lab: FaultLab) -> None:
    jobs = lab.enqueue("counted", MOST, limits=KEY, seconds=1.0)  # long enough to meet: the limit is reached
    jobs += lab.enqueue("counted", scaled(40, 3_000), limits=KEY, seconds=0.01)
    began, state, kills = time.monotonic(), WorkerState(lab), scaled(2, 50)

    for kill in range(kills):
        done = lab.final()
        lab.until(lambda done=done: lab.final() > done, "the holders get on")  # type: ignore[misc]
        if lab.final() + 2 * (kills - kill) > len(jobs):
            jobs += lab.enqueue("counted", 20, limits=KEY, seconds=0.01)
        state.kill_a_holder()
    lab.until_final(jobs, within=scaled(240, 2_400))

    assert lab.counts() == {State.SUCCEEDED: len(jobs)}
    intervals = state.intervals()
    assert fullest(intervals) == MOST, state.kills
    assert {begin.job for begin, _ in intervals} == set(jobs)
    no_slot_is_lost(lab)
    took = time.monotonic() - began
    print(f"{len(jobs)} jobs in {PROCESSES} processes, {kills} holders killed, {len(intervals)} runs, {took:.0f} s")


class WorkerState:
    """Workers of which one that holds a slot is killed now and then, and replaced."""

    def __init__(self, lab: FaultLab) -> None:
        self._lab = lab
        self._workers = [self._start() for _ in range(PROCESSES)]
        self.kills: dict[int, float] = {}  # by process: when it was gone

    def _start(self) -> Process:
        # A worker that is killed makes the jobs it holds suspects; here that proves nothing about the jobs.
        return self._lab.start("--concurrency", "2", WINDLASS_MAX_CRASHES="1000")

    def kill_a_holder(self) -> None:
        self._lab.until(self._kill_one, "a worker holds a slot and is killed")

    def _kill_one(self) -> bool:
        """The worker that runs a handler now, itself or in a child."""
        open_now = {begin.pid for begin, end in self.intervals() if end is None}
        holders = [worker for worker in self._workers if open_now & {worker.pid, *worker.descendants()}]
        if not holders:
            return False
        victim = self._lab.random.choice(holders)
        family = [victim.pid, *victim.descendants()]
        victim.kill()
        for pid in family:
            self._lab.until(lambda pid=pid: state(pid) in ("", "Z"), f"process {pid} is gone")  # type: ignore[misc]
            self.kills[pid] = time.time()
        self._workers[self._workers.index(victim)] = self._start()
        return True

    def intervals(self) -> list[tuple[Entry, float | None]]:
        """The runs of handlers: from its first line to its last, or to the end of its process."""
        ledger = self._lab.ledger()
        ends = {(entry.job, entry.fence): entry.at for entry in ledger if entry.event == "end"}
        return [
            (entry, ends.get((entry.job, entry.fence), self.kills.get(entry.pid)))
            for entry in ledger
            if entry.event == "begin"
        ]


def fullest(intervals: list[tuple[Entry, float | None]]) -> int:
    """How many ran at a time at most."""
    moments: list[tuple[float, int]] = []
    for begin, end in intervals:
        assert end is not None, begin
        moments += [(begin.at, 1), (end, -1)]
    at_once = most = 0
    for _, change in sorted(moments):
        at_once += change
        most = max(most, at_once)
    return most


def no_slot_is_lost(lab: FaultLab) -> None:
    assert [tuple(row) for row in lab.sql("select key, used from {}limit_counters where used <> 0")] == []
    assert lab.sql("select id from {}jobs where parked_on is not null") == []


# A gate


def test_a_gate_closed_under_load_holds_and_loses_nothing(lab: FaultLab) -> None:
    jobs = lab.enqueue("plain", scaled(3_000, 60_000))
    workers = [lab.ready("--concurrency", "50") for _ in range(2)]
    lab.until(lambda: lab.final() > len(jobs) // 10, "the load is on")
    jobs += lab.enqueue("plain", scaled(3_000, 60_000))  # the test may have read later than the workers wrote

    lab.ask(lambda store: store.set_gate(GateKind.ALL, "", GateState.PAUSED, reason="maintenance", actor="test"))
    closed = clock(lab)
    lab.until(lambda: State.RUNNING not in lab.counts(), "what ran has ended, and what waited went back")
    shut = clock(lab)
    lab.until(lambda: clock(lab) >= shut + CLOSED, "it was closed for a while")
    opened = clock(lab)
    left = len(jobs) - lab.final()
    lab.ask(lambda store: store.set_gate(GateKind.ALL, "", GateState.OPEN, actor="test"))
    lab.until_final(jobs)

    begins = [entry.at for entry in lab.ledger() if entry.event == "begin"]
    late = [at - closed for at in begins if shut < at < opened]
    assert late == []
    assert left > 0, "the load was over before the gate was closed: this run proves nothing"
    assert lab.counts() == {State.SUCCEEDED: len(jobs)}
    assert [worker.ended() for worker in workers] == [None, None]
    rows = lab.sql("select attempt, count(*) from {}history group by 1")
    assert [tuple(row) for row in rows] == [(1, len(jobs))]  # a job that was released burned no attempt
    before = [at for at in begins if at <= closed]
    after = max((at - closed for at in begins if closed < at < opened), default=0.0)
    print(f"{len(before) / (closed - before[0]):,.0f} jobs/s before; the last began {after:.3f} s after; {left} waited")


def clock(lab: FaultLab) -> float:
    """The database's clock. SQLite has none: there it is the machine's, which the ledger uses too."""
    if lab.url.startswith("sqlite"):
        return time.time()
    return float(lab.sql("select extract(epoch from {}now())::float8")[0][0])


# A tenant that floods


def test_a_tenant_that_floods_and_fails_keeps_nobody_waiting(lab: FaultLab) -> None:
    """The order is judged and not the time: how many of the flood began while a job of the other tenant waited."""
    flood = scaled(1_500, 15_000)
    lab.ready("--concurrency", "4")
    alone = visits(lab)
    others = set(lab.enqueue("failing", flood, tenant="heavy", seconds=0.02))
    lab.until(lambda: any(entry.job in others for entry in lab.ledger()), "the flood is on")

    beside = visits(lab)

    left = int(lab.sql("select count(*) from {}jobs where tenant = 'heavy'")[0][0])
    begins = [entry for entry in lab.ledger() if entry.event == "begin"]
    passed = [sum(sent < entry.at < begin.at and entry.job in others for entry in begins) for sent, begin in beside]
    waits = [sorted(begin.at - sent for sent, begin in visit) for visit in (alone, beside)]
    print(f"p99 of a light tenant: {1000 * waits[0][-1]:.0f} ms alone, {1000 * waits[1][-1]:.0f} ms beside the flood")
    print(f"passed by at most {max(passed)} of the flood, of which {left} were left")
    assert left > flood // 3, "the flood was over: this run proves nothing"
    assert max(passed) <= MOST_PASSED


def visits(lab: FaultLab) -> list[tuple[float, Entry]]:
    """A job of the light tenant again and again, one at a time: when it was sent, and its begin."""
    found = []
    for _ in range(VISITS):
        sent = time.time()
        (job,) = lab.enqueue("plain", tenant="light")
        lab.until(lambda job=job: bool(lab.begins(job)), "the light tenant's job begins")  # type: ignore[misc]
        found.append((sent, lab.begins(job)[0]))
    return found

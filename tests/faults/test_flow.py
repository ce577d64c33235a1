"""What follows what, while workers are killed: joins, phases, steps, keys and cancels."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import UUID

import msgspec

from windlass import State

from .process import Process
from .rig import HERE, Yard, scaled
from .test_kills import POINTS
from .test_pipelines import TRACES, enqueue

STEP_POINTS = ("step.before_commit", "step.committed", *POINTS)
LONG = scaled(120, 1_800)  # seconds until a story gives up
PRODUCERS = 64
LOOKS = 5  # at the workers, for each look at the store


class Gang:
    """Workers of whom one after the other is killed: by the test at random, and by themselves at the worst moments."""

    def __init__(
        self, yard: Yard, *, workers: int, concurrency: int = 5, points: Sequence[str] = (), chance: float = 0.0
    ) -> None:
        self.kills = 0
        self._yard = yard
        self._concurrency = concurrency
        self._environment: dict[str, str] = {}
        if points:
            self._environment["WINDLASS_FAILPOINTS"] = ";".join(f"{point}=kill@{chance}" for point in points)
            # The children of a worker die there too, and of that many deaths an innocent may seem a poison.
            self._environment["WINDLASS_MAX_CRASHES"] = "1000"
        self._began = time.monotonic()
        self._workers = [self._start() for _ in range(workers)]

    def work(self, progress: Callable[[], int], total: int, *, kills: int) -> None:
        """Until a twentieth of the work is left; on the way so many are killed, each at a moment of its own."""
        random, most, looks = self._yard.random, round(0.95 * total), itertools.count()
        for moment in [*sorted(random.choices(range(1, most), k=kills)), most]:

            def comes(moment: int = moment) -> bool:
                self._tend()
                return next(looks) % LOOKS == 0 and progress() >= moment

            self._yard.until(comes, f"{moment} of {total}", within=LONG)
            if moment < most:
                self._replace(random.randrange(len(self._workers)))

    def finish(self, jobs: int) -> None:
        """From here on nobody is killed from outside. What the dead have left behind is done as well."""
        if "WINDLASS_FAILPOINTS" in self._environment:  # these would go on dying
            del self._environment["WINDLASS_FAILPOINTS"]
            dying, self._workers = self._workers, [self._start()]
            for worker in dying:
                worker.end()

        def done() -> bool:
            self._tend()
            return self._yard.final() >= jobs

        self._yard.until(done, f"{jobs} jobs are final", within=LONG)

    def told(self) -> str:
        return f"{self.kills} kills, {time.monotonic() - self._began:.1f} s"

    def _tend(self) -> None:
        """Start those again who died by themselves."""
        for place, worker in enumerate(self._workers):
            if worker.ended() is not None:
                assert worker.ended() == -signal.SIGKILL, self._yard.told()
                self._replace(place)

    def _replace(self, place: int) -> None:
        self._workers[place].kill()
        self._workers[place] = self._start()
        self.kills += 1

    def _start(self) -> Process:
        return self._yard.start("--concurrency", str(self._concurrency), **self._environment)


# Joins


def test_a_fan_out_joins_once_although_workers_are_killed(yard: Yard) -> None:
    file = is_a_file(yard)
    children = scaled(40, 1_000) if file else scaled(80, 10_000)
    (parent,) = yard.enqueue("fan_out", children=children, seconds=0.02, hard=True)
    gang = Gang(yard, workers=2 if file else 3)

    gang.work(yard.final, children, kills=scaled(2, 10) if file else scaled(3, 60))
    gang.finish(children)
    assert yard.find(parent).status is State.WAITING  # for the last one
    yard.open_gate()
    gang.finish(children + 2)

    assert yard.counts() == {State.SUCCEEDED: children + 2}  # none was spawned twice, none is lost
    assert msgspec.json.decode(yard.find(parent).output or "") == children + 1
    yard.check_effects([parent])
    yard.check_fences()
    check_joined_once(yard, [parent])
    assert len(yard.begins(parent)) >= 4  # it died before its wait and after it
    print(f"{children} children, {gang.told()}; {len(yard.begins(parent))} runs of the parent")


def test_joins_happen_once_although_parents_die_at_the_worst_moments(yard: Yard) -> None:
    file = is_a_file(yard)
    count, children = scaled(4, 100) if file else scaled(6, 1_000), 2
    parents = yard.enqueue("fan_out", count, children=children)
    gang = Gang(yard, workers=2, points=POINTS, chance=0.02 / scaled(1, 10))
    total = count * (children + 1)

    gang.work(yard.final, total, kills=1)
    gang.finish(total)

    assert yard.counts() == {State.SUCCEEDED: total}
    yard.check_effects(parents)
    yard.check_fences()
    check_joined_once(yard, parents)
    print(f"{count} parents, {gang.told()}")


def check_joined_once(yard: Yard, parents: list[UUID]) -> None:
    """Of all runs of a parent one committed its wait and one, the last, came through it; all others crashed."""
    runs: defaultdict[UUID, dict[str, list[int]]] = defaultdict(lambda: {"begin": [], "joined": []})
    for entry in yard.ledger():
        if entry.event in ("begin", "joined"):
            runs[entry.job][entry.event].append(entry.fence)
    for parent in parents:
        record = yard.find(parent)
        attempts = msgspec.json.decode(record.attempts or "[]")
        assert {attempt["outcome"] for attempt in attempts} <= {"crashed"}, attempts
        crashed = {attempt["fence"] for attempt in attempts}
        begun = [fence for fence in runs[parent]["begin"] if fence not in crashed]
        joined = [fence for fence in runs[parent]["joined"] if fence not in crashed]
        assert (len(begun), begun[-1:], joined) == (2, [record.fence], [record.fence]), (record, runs[parent])


# Phases


def test_every_phase_happens_once_although_workers_are_killed_at_random(postgres_yard: Yard) -> None:
    yard = postgres_yard
    jobs = enqueue(yard, scaled(30, 5_000))
    gang = Gang(yard, workers=3)

    gang.work(lambda: effects(yard), len(jobs) * len(TRACES), kills=scaled(2, 60))
    gang.finish(len(jobs))

    assert yard.counts() == {State.SUCCEEDED: len(jobs)}
    rows = Counter(job for job, _ in yard.sql("select job, fence from effects"))
    assert rows == Counter(f"{job} {trace}" for job in jobs for trace in TRACES)
    yard.check_fences()
    print(f"{len(jobs)} jobs of three phases, {gang.told()}")


# Steps


def test_a_step_that_charges_is_not_called_again_after_its_commit(yard: Yard) -> None:
    file = is_a_file(yard)
    jobs = yard.enqueue("pay", scaled(1, 10), dies=True)
    jobs += yard.enqueue("pay", scaled(15, 500) if file else scaled(25, 5_000))
    gang = Gang(yard, workers=2, points=STEP_POINTS, chance=0.015 / scaled(1, 10))

    gang.work(lambda: effects(yard), len(jobs), kills=scaled(1, 10))
    gang.finish(len(jobs))

    assert yard.counts() == {State.SUCCEEDED: len(jobs)}
    assert yard.effects() == Counter(jobs)  # one row each
    charged = {UUID(job): fence for job, fence in yard.sql("select job, fence from effects")}
    calls: defaultdict[UUID, list[int]] = defaultdict(list)
    for entry in yard.ledger():
        if entry.event == "charge":
            calls[entry.job].append(entry.fence)
        elif entry.event.startswith("charged:"):  # what every later run is told
            assert int(entry.event.partition(":")[2]) == charged[entry.job], entry
    for job in jobs:
        # A run's fence is higher than that of any run before it: none called it after the one whose row is there.
        assert (len(calls[job]), max(calls[job])) == (len(set(calls[job])), charged[job]), (job, calls[job])
    later = sum(yard.find(job).fence > charged[job] for job in jobs)
    assert later >= scaled(1, 10), "no run came after a charge: the story told nothing"
    again = sum(len(fences) > 1 for fences in calls.values())
    print(f"{len(jobs)} charges, {gang.told()}; {again} called again before the commit, {later} jobs ran on after it")


# Keys


def test_of_64_producers_in_several_processes_of_whom_half_roll_back_one_makes_the_job(yard: Yard) -> None:
    holder = producer(yard, "hold")
    yard.until(lambda: "held" in holder.told(), "a transaction holds the key")
    processes = 2 if is_a_file(yard) else 4
    producers = [producer(yard, str(PRODUCERS // processes)) for _ in range(processes)]
    yard.until(lambda: all("ready" in each.told() for each in producers), "the producers are ready")

    yard.open_gate()
    holder.kill()  # and with it goes its transaction

    assert [each.wait() for each in producers] == [0] * processes, yard.told()
    answers = [line.split() for each in producers for line in each.told().splitlines() if line != "ready"]
    assert Counter(commits for _, commits, _ in answers) == {"committed": PRODUCERS // 2, "back": PRODUCERS // 2}
    ((job, status),) = yard.sql("select id, status from {}jobs")
    assert status == "queued"
    assert [id for which, commits, id in answers if (which, commits) == ("new", "committed")] == [str(job)]
    assert {id for which, _, id in answers if which == "existing"} == {str(job)}  # nobody is told of what never was
    ((held,),) = yard.sql("select job from {}keys")
    assert str(held) == str(job)


def producer(yard: Yard, what: str) -> Process:
    process = Process(
        [sys.executable, "producer.py", what],
        cwd=HERE,
        environment={**os.environ, "WINDLASS_URL": yard.url, "FAULT_GATE": str(yard.gate)},
        log=yard.gate.with_name(f"producer-{len(yard.processes)}.log"),
    )
    yard.processes.append(process)
    return process


# Cancels


class Kin(NamedTuple):
    """One job of a family."""

    type: str
    status: str
    fence: int


def test_a_cancelled_family_ends_under_load_although_a_worker_with_children_is_killed(yard: Yard) -> None:
    # Those who run leaves run nothing else, and so claim none ahead: there are enough for all of them.
    workers = [yard.start("--concurrency", "4", "--type", "gated") for _ in range(2 if is_a_file(yard) else 3)]
    yard.start("--concurrency", "4", "--type", "tree", "--type", "branch", "--type", "plain")
    branches, leaves = 4, 8
    (root,) = yard.enqueue("tree", branches=branches, leaves=leaves)
    load = yard.enqueue("plain", 40, seconds=0.01)

    def grown() -> bool:
        kin = family(yard, root)
        running = {job for job, each in kin.items() if (each.type, each.status) == ("gated", "running")}
        return (
            sum(each.status == "waiting" for each in kin.values()) == 1 + branches
            and any(each.status == "succeeded" for each in kin.values())
            and {begin.pid for begin in yard.ledger() if begin.job in running} == {worker.pid for worker in workers}
        )

    yard.until(grown, "every worker runs leaves, some are done, and their parents wait")
    yard.random.choice(workers).kill()
    answer = yard._app.find(root).cancel()
    asked = family(yard, root)
    load += yard.enqueue("plain", 40, seconds=0.01)
    yard.start("--concurrency", "20")
    yard.until_final(len(asked) + len(load))

    assert answer is State.CANCELLED
    assert len(asked) == 1 + branches + branches * leaves
    assert {kin.status for kin in asked.values()} == {"cancelled", "succeeded", "running"}
    ended = family(yard, root)
    assert {job: kin.fence for job, kin in ended.items()} == {job: kin.fence for job, kin in asked.items()}  # no claim
    succeeded = {job for job, kin in ended.items() if kin.status != "cancelled"}
    assert {(ended[job].type, ended[job].status) for job in succeeded} == {("plain", "succeeded")}
    assert "cancelled" not in {asked[job].status for job in succeeded}
    assert all(yard.find(job).status is State.SUCCEEDED for job in load)
    check_silence(yard, set(ended))
    rescues = sum(yard.find(job).rescues for job in ended)
    assert rescues == 4, "the killed worker had its processors full of leaves"
    print(f"{dict(Counter(kin.status for kin in ended.values()))}; {rescues} of them ran in the killed worker")


def check_silence(yard: Yard, jobs: set[UUID]) -> None:
    """Nothing of them runs any more, not even with an open gate, while others come and go."""
    before = len(yard.ledger())
    yard.open_gate()
    others = yard.enqueue("gated", 20)
    yard.until(lambda: all(yard.find(job).status is State.SUCCEEDED for job in others), "others run")
    told = yard.ledger()
    assert not [entry for entry in told[before:] if entry.job in jobs]
    assert not [entry for entry in told if entry.job in jobs and entry.event == "joined"]
    gated = {entry.job for entry in told if entry.event == "end"} & jobs
    assert all(yard.find(job).type == "plain" for job in gated)


def family(yard: Yard, root: UUID) -> dict[UUID, Kin]:
    """The job, those that it created, and those that these created."""
    kin: dict[UUID, Kin] = {}
    children: defaultdict[UUID, list[UUID]] = defaultdict(list)
    select = "select id, parent, type, status, fence from {}"
    for id, parent, *rest in yard.sql(f"{select}jobs union all {select}history"):
        kin[UUID(str(id))] = Kin(*rest)
        if parent is not None:
            children[UUID(str(parent))].append(UUID(str(id)))
    found, left = {}, [root]
    while left:
        job = left.pop()
        found[job] = kin[job]
        left += children[job]
    return found


# Looking


def effects(yard: Yard) -> int:
    ((count,),) = yard.sql("select count(*) from effects")
    return int(count)


def is_a_file(yard: Yard) -> bool:
    """A SQLite file takes one writer at a time: fewer processes, fewer jobs."""
    return yard.url.startswith("sqlite")

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
from .rig import HERE, FaultLab, scaled
from .test_kills import POINTS
from .test_pipelines import TRACES, enqueue

STEP_POINTS = ("step.before_commit", "step.committed", *POINTS)
LONG = scaled(120, 1_800)  # seconds until a story gives up
PRODUCERS = 64
LOOKS = 5  # at the workers, for each read of the store


class WorkerGroup:
    """Workers that are killed one after the other: by the test at random, and by themselves at the worst moments."""

    def __init__(
        self, lab: FaultLab, *, workers: int, concurrency: int = 5, points: Sequence[str] = (), chance: float = 0.0
    ) -> None:
        self.kills = 0
        self._lab = lab
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
        random, most, looks = self._lab.random, round(0.95 * total), itertools.count()
        for moment in [*sorted(random.choices(range(1, most), k=kills)), most]:

            def comes(moment: int = moment) -> bool:
                self._tend()
                return next(looks) % LOOKS == 0 and progress() >= moment

            self._lab.until(comes, f"{moment} of {total}", within=LONG)
            if moment < most:
                self._replace(random.randrange(len(self._workers)))

    def finish(self, jobs: int) -> None:
        """From here on the test kills no worker. The jobs of dead workers are finished as well."""
        if "WINDLASS_FAILPOINTS" in self._environment:  # these would go on dying
            del self._environment["WINDLASS_FAILPOINTS"]
            dying, self._workers = self._workers, [self._start()]
            for worker in dying:
                worker.end()

        def done() -> bool:
            self._tend()
            return self._lab.final() >= jobs

        self._lab.until(done, f"{jobs} jobs are final", within=LONG)

    def summary(self) -> str:
        return f"{self.kills} kills, {time.monotonic() - self._began:.1f} s"

    def _tend(self) -> None:
        """Replace workers that died by themselves."""
        for place, worker in enumerate(self._workers):
            if worker.ended() is not None:
                assert worker.ended() == -signal.SIGKILL, self._lab.report()
                self._replace(place)

    def _replace(self, place: int) -> None:
        self._workers[place].kill()
        self._workers[place] = self._start()
        self.kills += 1

    def _start(self) -> Process:
        return self._lab.start("--concurrency", str(self._concurrency), **self._environment)


# Joins


def test_a_fan_out_joins_once_although_workers_are_killed(lab: FaultLab) -> None:
    file = is_a_file(lab)
    children = scaled(40, 1_000) if file else scaled(80, 10_000)
    (parent,) = lab.enqueue("fan_out", children=children, seconds=0.02, hard=True)
    group = WorkerGroup(lab, workers=2 if file else 3)

    group.work(lab.final, children, kills=scaled(2, 10) if file else scaled(3, 60))
    group.finish(children)
    assert lab.find(parent).status is State.WAITING  # for the last one
    lab.open_gate()
    group.finish(children + 2)

    assert lab.counts() == {State.SUCCEEDED: children + 2}  # none was spawned twice, none is lost
    assert msgspec.json.decode(lab.find(parent).output or "") == children + 1
    lab.check_effects([parent])
    lab.check_fences()
    check_joined_once(lab, [parent])
    assert len(lab.begins(parent)) >= 4  # it died before its wait and after it
    print(f"{children} children, {group.summary()}; {len(lab.begins(parent))} runs of the parent")


def test_joins_happen_once_although_parents_die_at_the_worst_moments(lab: FaultLab) -> None:
    file = is_a_file(lab)
    count, children = scaled(4, 100) if file else scaled(6, 1_000), 2
    parents = lab.enqueue("fan_out", count, children=children)
    group = WorkerGroup(lab, workers=2, points=POINTS, chance=0.02 / scaled(1, 10))
    total = count * (children + 1)

    group.work(lab.final, total, kills=1)
    group.finish(total)

    assert lab.counts() == {State.SUCCEEDED: total}
    lab.check_effects(parents)
    lab.check_fences()
    check_joined_once(lab, parents)
    print(f"{count} parents, {group.summary()}")


def check_joined_once(lab: FaultLab, parents: list[UUID]) -> None:
    """Of all runs of a parent one committed its wait and one, the last, came through it; all others crashed."""
    runs: defaultdict[UUID, dict[str, list[int]]] = defaultdict(lambda: {"begin": [], "joined": []})
    for entry in lab.ledger():
        if entry.event in ("begin", "joined"):
            runs[entry.job][entry.event].append(entry.fence)
    for parent in parents:
        record = lab.find(parent)
        attempts = msgspec.json.decode(record.attempts or "[]")
        assert {attempt["outcome"] for attempt in attempts} <= {"crashed"}, attempts
        crashed = {attempt["fence"] for attempt in attempts}
        begun = [fence for fence in runs[parent]["begin"] if fence not in crashed]
        joined = [fence for fence in runs[parent]["joined"] if fence not in crashed]
        assert (len(begun), begun[-1:], joined) == (2, [record.fence], [record.fence]), (record, runs[parent])


# Phases


def test_every_phase_happens_once_although_workers_are_killed_at_random(postgres_lab: FaultLab) -> None:
    lab = postgres_lab
    jobs = enqueue(lab, scaled(30, 5_000))
    group = WorkerGroup(lab, workers=3)

    group.work(lambda: effects(lab), len(jobs) * len(TRACES), kills=scaled(2, 60))
    group.finish(len(jobs))

    assert lab.counts() == {State.SUCCEEDED: len(jobs)}
    rows = Counter(job for job, _ in lab.sql("select job, fence from effects"))
    assert rows == Counter(f"{job} {trace}" for job in jobs for trace in TRACES)
    lab.check_fences()
    print(f"{len(jobs)} jobs of three phases, {group.summary()}")


# Steps


def test_a_step_that_charges_is_not_called_again_after_its_commit(lab: FaultLab) -> None:
    file = is_a_file(lab)
    jobs = lab.enqueue("pay", scaled(1, 10), dies=True)
    jobs += lab.enqueue("pay", scaled(15, 500) if file else scaled(25, 5_000))
    group = WorkerGroup(lab, workers=2, points=STEP_POINTS, chance=0.015 / scaled(1, 10))

    group.work(lambda: effects(lab), len(jobs), kills=scaled(1, 10))
    group.finish(len(jobs))

    assert lab.counts() == {State.SUCCEEDED: len(jobs)}
    assert lab.effects() == Counter(jobs)  # one row each
    charged = {UUID(job): fence for job, fence in lab.sql("select job, fence from effects")}
    calls: defaultdict[UUID, list[int]] = defaultdict(list)
    for entry in lab.ledger():
        if entry.event == "charge":
            calls[entry.job].append(entry.fence)
        elif entry.event.startswith("charged:"):  # what every later run reads
            assert int(entry.event.partition(":")[2]) == charged[entry.job], entry
    for job in jobs:
        # A run's fence is higher than that of any run before it: none called it after the run that committed its row.
        assert (len(calls[job]), max(calls[job])) == (len(set(calls[job])), charged[job]), (job, calls[job])
    later = sum(lab.find(job).fence > charged[job] for job in jobs)
    assert later >= scaled(1, 10), "no run came after a charge: this run proves nothing"
    again = sum(len(fences) > 1 for fences in calls.values())
    print(
        f"{len(jobs)} charges, {group.summary()}; {again} called again before the commit, {later} jobs ran on after it"
    )


# Keys


def test_of_64_producers_in_several_processes_one_makes_the_job_although_half_roll_back(lab: FaultLab) -> None:
    holder = producer(lab, "hold")
    lab.until(lambda: "held" in holder.output(), "a transaction holds the key")
    processes = 2 if is_a_file(lab) else 4
    producers = [producer(lab, str(PRODUCERS // processes)) for _ in range(processes)]
    lab.until(lambda: all("ready" in each.output() for each in producers), "the producers are ready")

    lab.open_gate()
    holder.kill()  # and with it goes its transaction

    assert [each.wait() for each in producers] == [0] * processes, lab.report()
    answers = [line.split() for each in producers for line in each.output().splitlines() if line != "ready"]
    assert Counter(commits for _, commits, _ in answers) == {"committed": PRODUCERS // 2, "back": PRODUCERS // 2}
    ((job, status),) = lab.sql("select id, status from {}jobs")
    assert status == "queued"
    assert [id for which, commits, id in answers if (which, commits) == ("new", "committed")] == [str(job)]
    assert {id for which, _, id in answers if which == "existing"} == {
        str(job)
    }  # no enqueue returns a job that was never committed
    ((held,),) = lab.sql("select job from {}keys")
    assert str(held) == str(job)


def producer(lab: FaultLab, what: str) -> Process:
    process = Process(
        [sys.executable, "producer.py", what],
        cwd=HERE,
        environment={**os.environ, "WINDLASS_URL": lab.url, "FAULT_GATE": str(lab.gate)},
        log=lab.gate.with_name(f"producer-{len(lab.processes)}.log"),
    )
    lab.processes.append(process)
    return process


# Cancels


class Kin(NamedTuple):
    """One job of a family."""

    type: str
    status: str
    fence: int


def test_a_cancelled_family_ends_under_load_although_a_worker_with_children_is_killed(lab: FaultLab) -> None:
    # Workers that run leaves run nothing else, and so claim none ahead: there are enough for all of them.
    workers = [lab.start("--concurrency", "4", "--type", "gated") for _ in range(2 if is_a_file(lab) else 3)]
    lab.start("--concurrency", "4", "--type", "tree", "--type", "branch", "--type", "plain")
    branches, leaves, full = 4, 8, {worker.pid: 4 for worker in workers}
    (root,) = lab.enqueue("tree", branches=branches, leaves=leaves)
    load = lab.enqueue("plain", 40, seconds=0.01)

    def grown() -> bool:
        kin = family(lab, root)
        running = {job for job, each in kin.items() if (each.type, each.status) == ("gated", "running")}
        return (
            sum(each.status == "waiting" for each in kin.values()) == 1 + branches
            and any(each.status == "succeeded" for each in kin.values())
            and Counter(begin.pid for begin in lab.ledger() if begin.job in running) == full
        )

    lab.until(grown, "every worker has its processors full of leaves, some are done, and their parents wait")
    lab.random.choice(workers).kill()
    answer = lab._app.find(root).cancel()
    asked = family(lab, root)
    load += lab.enqueue("plain", 40, seconds=0.01)
    lab.start("--concurrency", "20")
    lab.until_final(len(asked) + len(load))

    assert answer is State.CANCELLED
    assert len(asked) == 1 + branches + branches * leaves
    assert {kin.status for kin in asked.values()} == {"cancelled", "succeeded", "running"}
    ended = family(lab, root)
    assert {job: kin.fence for job, kin in ended.items()} == {job: kin.fence for job, kin in asked.items()}  # no claim
    succeeded = {job for job, kin in ended.items() if kin.status != "cancelled"}
    assert {(ended[job].type, ended[job].status) for job in succeeded} == {("plain", "succeeded")}
    assert "cancelled" not in {asked[job].status for job in succeeded}
    assert all(lab.find(job).status is State.SUCCEEDED for job in load)
    check_silence(lab, set(ended))
    rescues = sum(lab.find(job).rescues for job in ended)
    assert rescues == 4, "the killed worker had its processors full of leaves"
    print(f"{dict(Counter(kin.status for kin in ended.values()))}; {rescues} of them ran in the killed worker")


def check_silence(lab: FaultLab, jobs: set[UUID]) -> None:
    """Nothing of them runs any more, not even with an open gate, while others come and go."""
    before = len(lab.ledger())
    lab.open_gate()
    others = lab.enqueue("gated", 20)
    lab.until(lambda: all(lab.find(job).status is State.SUCCEEDED for job in others), "others run")
    ledger = lab.ledger()
    assert not [entry for entry in ledger[before:] if entry.job in jobs]
    assert not [entry for entry in ledger if entry.job in jobs and entry.event == "joined"]
    gated = {entry.job for entry in ledger if entry.event == "end"} & jobs
    assert all(lab.find(job).type == "plain" for job in gated)


def family(lab: FaultLab, root: UUID) -> dict[UUID, Kin]:
    """The job, those that it created, and those that these created."""
    kin: dict[UUID, Kin] = {}
    children: defaultdict[UUID, list[UUID]] = defaultdict(list)
    select = "select id, parent, type, status, fence from {}"
    for id, parent, *rest in lab.sql(f"{select}jobs union all {select}history"):
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


def effects(lab: FaultLab) -> int:
    ((count,),) = lab.sql("select count(*) from effects")
    return int(count)


def is_a_file(lab: FaultLab) -> bool:
    """A SQLite file takes one writer at a time: fewer processes, fewer jobs."""
    return lab.url.startswith("sqlite")

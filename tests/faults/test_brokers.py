"""Delivery through a broker under fire: the broker, the relay and the workers are killed, and messages are repeated.

`make test-long` (scale 7.5) runs each with 20,000 jobs, and ten minutes without a broker.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from windlass import State
from windlass.errors import BrokerError

from .brokers import BrokerUnderFire, Carrier, private_broker
from .process import Process
from .rig import SCALE, FaultLab, scaled

WORKERS = 2
STRANGERS = 30
TIMES = {
    "WINDLASS_LEASE": "10s",  # longer than in other stories: the server of a broker takes a core while it starts
    "WINDLASS_BEAT": "1s",
    "WINDLASS_MARGIN": "2s",
    "WINDLASS_FALLBACK": "2s",
}


# A RabbitMQ takes a core for seconds at each start: it comes with the long runs. tests/transport kills one in each run.
@pytest.fixture(scope="module", params=["redis"] if SCALE == 1 else ["rabbitmq", "redis"])
def broker(request: pytest.FixtureRequest) -> Iterator[BrokerUnderFire]:
    with private_broker(request.param) as made:
        yield made


class Fleet:
    """Workers that only receive, and one relay of its own."""

    def __init__(self, lab: FaultLab, broker: BrokerUnderFire, published: str, received: str) -> None:
        self._lab = lab
        self._published = published
        self._received = received
        self._broker = broker
        self.relay = lab.relay(WINDLASS_BROKER=published)
        self.workers = [self.start_worker() for _ in range(WORKERS)]
        self.until_all_receive()
        broker.settle()

    def start_worker(self) -> Process:
        return self._lab.start(
            "--concurrency",
            "20",
            WINDLASS_BROKER=self._received,
            WINDLASS_RELAY="off",
            **TIMES,
        )

    def replace_relay(self) -> None:
        self.relay.kill()
        self.relay = self._lab.relay(WINDLASS_BROKER=self._published)

    def replace_worker(self, number: int) -> None:
        self.workers[number].kill()
        self.workers[number] = self.start_worker()

    def until_all_receive(self) -> None:
        """Until each worker consumes, as the broker counts them; a worker that died may be counted as well."""

        def all_receive() -> bool:
            depth = self._broker.depth(self._received)
            return depth is not None and depth.consumers >= WORKERS

        self._lab.until(all_receive, "every worker receives", within=120)

    def until_drained(self, part: str = "") -> None:
        """Until the outbox and the queue are empty: a relay publishes, and consumers acknowledge."""

        def is_drained() -> bool:
            depth = self._broker.depth(part or self._received)
            return depth is not None and depth.ready == 0 and self.outbox() == 0

        self._lab.until(is_drained, "the outbox and the queue are empty", within=600)

    def outbox(self) -> int:
        ((rows,),) = self._lab.sql("SELECT count(*) FROM {}outbox")
        return int(rows)


def test_jobs_survive_kills_of_the_broker_the_relay_and_workers(
    postgres_lab: FaultLab, broker: BrokerUnderFire
) -> None:
    """Given waves of jobs, when something is killed in the middle of each, then each job ends with one effect.

    The broker is killed last: relay and workers go on without a restart.
    """
    lab, began, kills = postgres_lab, time.monotonic(), Counter[str]()
    waves = scaled(3, 54)
    fleet = Fleet(lab, broker, broker.part(1), broker.part(1))

    jobs = lab.enqueue("effect", 20)
    for number in reversed(range(waves)):
        # More than the workers hold: what a killed Redis had is lost.
        jobs += lab.enqueue("effect", scaled(200, 615), seconds=0.05)
        done = lab.final()
        lab.until(lambda done=done: lab.final() > done, "the fleet gets on")  # type: ignore[misc]
        victim = ("broker", "worker", "relay")[number % 3]
        kills[victim] += 1
        if victim == "broker":
            broker.restart()
        elif victim == "relay":
            fleet.replace_relay()
        else:
            fleet.replace_worker(lab.random.randrange(WORKERS))
    lab.until_final(jobs, within=900)

    assert lab.counts() == {State.SUCCEEDED: len(jobs)}  # nothing lost, nothing left, nothing dead
    lab.check_effects(jobs)
    lab.check_fences()
    assert [each.ended() for each in (fleet.relay, *fleet.workers)] == [None] * (WORKERS + 1)
    fleet.until_all_receive()
    broker.send_strangers(broker.part(1), STRANGERS)
    fleet.until_drained()
    print(f"{len(jobs)} jobs, kills: {dict(kills)}, {time.monotonic() - began:.1f} s")


def test_messages_that_are_repeated_and_shuffled_change_no_outcome(
    postgres_lab: FaultLab, broker: BrokerUnderFire
) -> None:
    """Given a carrier that triples each message and shuffles them, then no delivery begins an attempt twice."""
    lab, began = postgres_lab, time.monotonic()
    carrier = Carrier(broker.part(2), broker.part(3), lab.random)
    carrier.start()
    try:
        fleet = Fleet(lab, broker, broker.part(2), broker.part(3))
        jobs = [job for _ in range(scaled(3, 54)) for job in lab.enqueue("effect", scaled(100, 655), seconds=0.005)]
        lab.until_final(jobs, within=900)
        fleet.until_drained(broker.part(2))  # a job that the first poll of a worker claimed may have had no message
        lab.until(lambda: carrier.is_idle, "every message was carried", within=900)
        fleet.until_drained(broker.part(3))
    finally:
        carrier.stop()

    assert lab.counts() == {State.SUCCEEDED: len(jobs)}
    assert carrier.carried > len(jobs), "few jobs had a message: this run proves little"
    lab.check_effects(jobs)
    first = [entry for entry in lab.ledger() if (entry.event, entry.attempt) == ("begin", 1)]
    assert Counter(entry.job for entry in first) == Counter(jobs)
    print(f"{len(jobs)} jobs, {carrier.carried} messages, {time.monotonic() - began:.1f} s")


class Wave(NamedTuple):
    """Jobs of one moment of an outage, of which half fail once."""

    size: int = 10

    def run(self, lab: FaultLab) -> int:
        before = lab.final()
        lab.enqueue("effect", self.size)
        lab.enqueue("failing", self.size)
        lab.until_final(before + 2 * self.size)
        return 2 * self.size


def test_work_goes_on_while_the_broker_is_away_for_long(postgres_lab: FaultLab, broker: BrokerUnderFire) -> None:
    """Given a broker that is killed, when it stays away, then polls run jobs and retries, and the log stays short.

    When it is back, then the relay empties the outbox and the consumers receive, without a restart.
    """
    lab, outage = postgres_lab, scaled(3, 830)
    fleet = Fleet(lab, broker, broker.part(4), broker.part(4))
    broker.kill()
    began, jobs = time.monotonic(), Wave().run(lab)
    while time.monotonic() < began + outage:
        jobs += Wave().run(lab)
    # A worker dies, and its jobs are rescued without a broker as well.
    lab.enqueue("effect", 40, seconds=0.5)
    lab.until(lambda: any(entry.pid == fleet.workers[0].pid for entry in lab.ledger()[-40:]), "the worker has some")
    fleet.replace_worker(0)
    jobs += 40
    lab.until_final(jobs, within=300)  # each rescued job starts a process of its own
    took = time.monotonic() - began

    assert lab.counts() == {State.SUCCEEDED: jobs}
    for process in (fleet.relay, *fleet.workers):
        lines = [line for line in process.output().splitlines() if "127.0.0.1" in line]
        assert len(lines) <= 10 + outage // 20, "\n".join(lines)
        assert lines or process is fleet.workers[0]  # which began a moment ago
        assert not any("answers again" in line for line in lines)

    broker.restart()
    fleet.until_all_receive()
    broker.send_strangers(broker.part(4), STRANGERS)
    fleet.until_drained()
    print(f"{jobs} jobs in {took:.0f} s without a broker")


# A RabbitMQ takes a core for seconds at each start, and RabbitMQ is the one that has leaders.
@pytest.mark.parametrize("broker", [] if SCALE == 1 else ["rabbitmq"], indirect=True)
def test_queues_that_a_kill_left_without_a_leader_are_made_again(
    postgres_lab: FaultLab, broker: BrokerUnderFire
) -> None:
    """Given queues that take messages and confirm none, then polls run the jobs, and consumers resume by themselves."""
    lab = postgres_lab
    fleet = Fleet(lab, broker, broker.part(5), broker.part(5))
    broker.restart_without_leaders()
    jobs = lab.enqueue("effect", 100)
    lab.until_final(jobs)
    lab.check_effects(jobs)

    def confirms() -> bool:
        try:
            broker.send_strangers(broker.part(5), STRANGERS)
        except BrokerError:
            return False
        return True

    took = lab.until(confirms, "the queue was made again", within=200)
    fleet.until_all_receive()
    fleet.until_drained()
    assert [each.ended() for each in (fleet.relay, *fleet.workers)] == [None] * (WORKERS + 1)
    print(f"the queue confirmed again after {took:.0f} s")

"""RabbitMQ, where it differs from other transports: a server that is killed, refuses, blocks, or lost its queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import aiormq
import pytest

import with_rabbitmq
from servers import url_of
from windlass.errors import BrokerRefused, BrokerUnavailable
from windlass.transport.protocol import Consumer, Delivery, Level
from windlass.transport.rabbitmq import queues as broker_queues
from windlass.transport.rabbitmq import subscription
from windlass.transport.rabbitmq.dispatcher import RabbitDispatcher
from windlass.transport.rabbitmq.topology import LONGEST, Topology

from .conftest import LIMIT, Bench, eventually, job_of, rabbit, rabbit_bench
from .test_contract import ODD_NAMES

pytestmark = pytest.mark.rabbitmq


# The kernel ends a server when the thread that started it ends, and those of `to_thread` end with the test's loop.
STARTER = ThreadPoolExecutor(1)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with rabbit_bench(url_of("amqp")) as made:
        yield made


@pytest.fixture(scope="module")
def server() -> Iterator[with_rabbitmq.RabbitServer]:
    """A server for the stories that kill or change it; each leaves it running."""
    with with_rabbitmq.private_rabbitmq(management=True) as made:
        yield made


@asynccontextmanager
async def opened(url: str, *, limit: float = 15.0) -> AsyncIterator[Bench]:
    transport = rabbit(url, limit=limit)
    await transport.open()
    try:
        yield Bench(name="rabbitmq", transport=transport)
    finally:
        await transport.close()


@asynccontextmanager
async def channel_to(url: str) -> AsyncIterator[aiormq.abc.AbstractChannel]:
    async with aiormq.connect(url) as connection:
        yield await connection.channel()


def topology_of(bench: Bench) -> Topology:
    assert isinstance(bench.transport, RabbitDispatcher)
    return bench.transport.topology


async def receive_after_a_break(consumer: Consumer) -> list[Delivery]:
    """What comes, whatever breaks before it."""
    async with asyncio.timeout(LIMIT):
        while True:
            try:
                return await consumer.receive(10)
            except BrokerUnavailable:
                continue


async def send_after_a_break(bench: Bench) -> None:
    async def sent() -> bool:
        try:
            await bench.send()
        except BrokerUnavailable:
            return False
        return True

    await eventually(sent)


# Breaks


async def test_a_killed_server_that_starts_again_finds_its_consumers_by_itself(
    server: with_rabbitmq.RabbitServer,
) -> None:
    async with opened(server.url) as bench, bench.transport.consume(["mail"], prefetch=10) as consumer:
        (kept,) = await bench.send()
        (held,) = await bench.receive(consumer, 1)
        await asyncio.to_thread(server.settle)
        await asyncio.to_thread(server.kill)
        with pytest.raises(BrokerUnavailable):
            async with asyncio.timeout(LIMIT):
                await consumer.receive(1)
        with pytest.raises(BrokerUnavailable):
            await bench.send()
        assert not bench.transport.is_up
        await asyncio.get_running_loop().run_in_executor(STARTER, server.start)

        (again,) = await receive_after_a_break(consumer)
        await consumer.acknowledge([held])  # of the old connection: ignored
        assert job_of(again) == job_of(held) == kept
        assert again.count == 2
        await consumer.acknowledge([again])
        await send_after_a_break(bench)
        (new,) = await receive_after_a_break(consumer)
        assert job_of(new) != kept


async def test_a_server_that_is_away_at_the_start_is_found_when_it_comes(server: with_rabbitmq.RabbitServer) -> None:
    await asyncio.to_thread(server.kill)
    transport = rabbit(server.url)
    try:
        with pytest.raises(BrokerUnavailable, match="cannot be reached") as problem:
            await transport.open()
        assert with_rabbitmq.PASSWORD + "@" not in str(problem.value)
        await asyncio.get_running_loop().run_in_executor(STARTER, server.start)
        await send_after_a_break(Bench(name="rabbitmq", transport=transport))
        assert transport.is_up
    finally:
        await transport.close()


async def test_a_queue_that_is_deleted_under_a_consumer_is_declared_and_consumed_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "RENEWAL", 1.0)  # where RabbitMQ did not tell
    name = topology_of(bench).name("mail", Level.NORMAL)
    async with bench.transport.consume(["mail"], prefetch=10) as consumer:
        await bench.send()
        await consumer.acknowledge(await bench.receive(consumer, 1))
        async with channel_to(url_of("amqp")) as channel:
            await channel.queue_delete(name)

        await send_after_a_break(bench)
        assert len(await receive_after_a_break(consumer)) == 1


async def test_a_queue_that_is_deleted_before_a_dispatch_is_made_again(bench: Bench) -> None:
    await bench.send()
    async with channel_to(url_of("amqp")) as channel:
        await channel.queue_delete(topology_of(bench).name("mail", Level.NORMAL))

    jobs = await bench.send(3)

    async with bench.transport.consume(["mail"], prefetch=10) as consumer:
        assert [job_of(each) for each in await bench.receive(consumer, 3)] == jobs


async def test_a_dead_letter_exchange_that_is_deleted_is_made_again(bench: Bench) -> None:
    await bench.send()
    async with channel_to(url_of("amqp")) as channel:
        await channel.exchange_delete(exchange=topology_of(bench).dead)

    assert await bench.transport.bury([(bench.message(), "permanent")]) == {0}
    assert [letter.reason for letter in await bench.transport.dead_letters(10)] == ["permanent"]


async def test_the_next_host_is_tried_when_the_first_is_down() -> None:
    with_two = url_of("amqp").replace("@127.0.0.1:", "@127.0.0.1:1,127.0.0.1:")

    async with opened(with_two) as bench:
        assert bench.transport.is_up


async def test_an_alarm_ends_a_dispatch_after_a_while_and_consumers_go_on(
    server: with_rabbitmq.RabbitServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log and a check name the alarm: a worker polls meanwhile, and shows nothing else of it."""
    monkeypatch.setattr(broker_queues, "ANSWER_LIMIT", 0.5)
    async with opened(server.url, limit=3.0) as bench, bench.transport.consume(["mail"], prefetch=10) as consumer:
        await bench.send(2)
        received = await bench.receive(consumer, 2)
        await asyncio.to_thread(server.control, "set_vm_memory_high_watermark", "0.00001")

        with pytest.raises(BrokerUnavailable, match="rabbitmq-diagnostics alarms"):
            async with asyncio.timeout(LIMIT):
                await bench.send()
        assert [each.levelname for each in caplog.records if "rabbitmq-diagnostics alarms" in each.getMessage()] == [
            "WARNING"
        ]
        async with opened(server.url) as another:
            found = {each.subject: each for each in await another.transport.check(["mail"])}
        assert not found["publishing"].ok
        assert "rabbitmq-diagnostics alarms" in str(found["publishing"].advice)
        await consumer.acknowledge(received)

        await asyncio.to_thread(server.control, "set_vm_memory_high_watermark", "0.4")
        await send_after_a_break(bench)
        assert received[0].payload not in [each.payload for each in await receive_after_a_break(consumer)]


# Refusals


async def test_wrong_credentials_are_named_and_no_password_is_shown() -> None:
    url = url_of("amqp").replace(":windlass@", ":wr0ng@")

    with pytest.raises(BrokerRefused, match="rabbitmqctl authenticate_user windlass") as refused:
        async with opened(url):
            pass

    assert "wr0ng" not in str(refused.value)


async def test_a_virtual_host_that_is_not_there_is_named() -> None:
    with pytest.raises(BrokerRefused, match="rabbitmqctl add_vhost nowhere"):
        async with opened(f"{url_of('amqp')}/nowhere"):
            pass


async def test_a_queue_with_other_arguments_is_reported_with_the_command_that_replaces_it(bench: Bench) -> None:
    name = topology_of(bench).name("mail", Level.NORMAL)
    async with channel_to(url_of("amqp")) as channel:
        await channel.queue_declare(name, durable=True)  # a classic queue
    repair = f"rabbitmqctl -p / delete_queue {name} && windlass broker setup"

    with pytest.raises(BrokerRefused) as refused:
        await bench.send()
    (finding,) = [each for each in await bench.transport.check(["mail"]) if each.subject == name]

    assert "x-dead-letter-exchange: Windlass wants" in str(refused.value)
    assert repair in str(refused.value)
    assert (finding.ok, "x-dead-letter-exchange" in finding.text, repair in (finding.advice or "")) == (
        False,
        True,
        True,
    )
    assert len(await bench.send(queue="other")) == 1  # the other queues go on


async def test_one_refused_queue_does_not_stop_the_others_of_a_dispatch(bench: Bench) -> None:
    async with channel_to(url_of("amqp")) as channel:
        await channel.queue_declare(topology_of(bench).name("bad", Level.NORMAL), durable=True)

    assert await bench.transport.dispatch([bench.message("bad"), bench.message("good")]) == {1}


async def test_the_management_plugin_tells_what_is_unacknowledged(server: with_rabbitmq.RabbitServer) -> None:
    url = f"{server.url}/?prefix=managed&management={server.management_port}"
    async with opened(url) as bench, bench.transport.consume(["mail"], prefetch=10) as consumer:
        await bench.send(3)
        await consumer.acknowledge((await bench.receive(consumer, 3))[:1])

        async def is_told() -> bool:
            (depth,) = await bench.transport.depths(["mail"])
            return (depth.ready, depth.unacknowledged) == (0, 2)

        await eventually(is_told)
    async with opened(f"{server.url}/?management=1") as bench:
        assert [depth.unacknowledged for depth in await bench.transport.depths(["mail"])] in ([], [None])
        wrong = [finding for finding in await bench.transport.check([]) if finding.subject == "management"]
        assert "rabbitmq-plugins enable" in str(wrong[0].advice)


# Delivery limit


async def test_a_queue_that_gives_no_answer_delays_no_other_one(
    server: with_rabbitmq.RabbitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a queue that takes messages and confirms none, as one without a leader, then others are published and
    consumed on the same connection, and later it is, too."""
    monkeypatch.setattr(broker_queues, "ANSWER_LIMIT", 0.5)
    async with opened(server.url) as bench, bench.transport.consume(["going", "stuck"], prefetch=10) as consumer:
        await bench.send(queue="stuck")
        await consumer.acknowledge(await bench.receive(consumer, 1))
        connection = bench.transport._link.connection  # type: ignore[attr-defined]
        process = "{'%2F_windlass.stuck.normal', node()}"
        await asyncio.to_thread(server.control, "eval", f"sys:suspend({process}).")
        try:
            for _ in range(3):
                assert await bench.transport.dispatch([bench.message("going"), bench.message("stuck")]) == {0}
                await consumer.acknowledge(await bench.receive(consumer, 1))
            with pytest.raises(BrokerUnavailable, match="gives no answer"):
                await bench.transport.dispatch([bench.message("stuck")])
            assert bench.transport._link.connection is connection  # type: ignore[attr-defined]
        finally:
            await asyncio.to_thread(server.control, "eval", f"sys:resume({process}).")
        # Its minute is over.
        bench.transport._publisher._silent.clear()  # type: ignore[attr-defined]
        assert await bench.transport.dispatch([bench.message("stuck")]) == {0}
        await bench.receive(consumer, 1)


async def test_silent_dead_letters_stop_no_queue(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a queue of dead letters without a leader, then jobs are published and received."""
    really, dead = broker_queues._declarations, topology_of(bench).dead

    def declarations(*given: Any) -> list[Any]:
        stuck = (dead, lambda channel: asyncio.Event().wait())
        return [stuck, *(each for each in really(*given) if each[0] != dead)]

    monkeypatch.setattr(broker_queues, "_declarations", declarations)
    monkeypatch.setattr(broker_queues, "ANSWER_LIMIT", 0.2)
    async with bench.transport.consume(["mail"], prefetch=10) as consumer:
        for _ in range(2):
            assert await bench.transport.dispatch([bench.message("mail")]) == {0}
            await consumer.acknowledge(await bench.receive(consumer, 1))


async def test_a_queue_that_is_being_deleted_is_asked_again_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = broker_queues.declare

    async def declare(*given: Any, **options: Any) -> None:
        raise BrokerUnavailable("mail cannot be declared now")

    monkeypatch.setattr(broker_queues, "declare", declare)
    with pytest.raises(BrokerUnavailable, match="declared now"):
        await bench.transport.dispatch([bench.message("mail")])
    monkeypatch.setattr(broker_queues, "declare", really)
    assert await bench.transport.dispatch([bench.message("mail")]) == {0}


async def test_what_kills_three_consumers_is_a_dead_letter(bench: Bench) -> None:
    (job,) = await bench.send()

    for count in (1, 2, 3):
        async with bench.transport.consume(["mail"], prefetch=10) as consumer:
            (delivery,) = await bench.receive(consumer, 1)
            assert (job_of(delivery), delivery.count) == (job, count)

    async def buried() -> bool:
        return bool(await bench.transport.dead_letters(10))

    await eventually(buried)
    (letter,) = await bench.transport.dead_letters(10)
    assert (letter.job, letter.payload, letter.queue) == (job, delivery.payload, "mail")
    assert "delivery_limit" in letter.reason


async def test_deliveries_that_a_worker_never_saw_are_not_counted_when_it_closes(bench: Bench) -> None:
    """Three restarts of a worker with a full buffer are no reason to bury a job."""
    jobs = await bench.send(20)

    for _ in range(5):
        async with bench.transport.consume(["mail"], prefetch=100) as consumer:
            (delivery,) = await bench.receive(consumer, 1)
            await consumer.give_back([delivery])

    async with bench.transport.consume(["mail"], prefetch=100) as consumer:
        assert {job_of(each) for each in await bench.receive(consumer, 20)} == set(jobs)
    assert await bench.transport.dead_letters(10) == []


# Names


def test_names_in_rabbitmq_are_short_and_different() -> None:
    names = [Topology().name(queue, Level.LOW) for queue in [*ODD_NAMES, "日" * 199, "a:20b", "%7Ex", "::x"]]

    assert len(set(names)) == len(names)
    assert max(len(name.encode()) for name in names) <= LONGEST
    assert Topology().name("mail", Level.HIGH) == "windlass.mail.high"

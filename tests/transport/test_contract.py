"""What every transport does: the database, RabbitMQ and Redis Streams pass the same stories."""

from __future__ import annotations

import asyncio

import pytest

from windlass.transport.protocol import LEVELS, Consumer, Level
from windlass.transport.rabbitmq.consumer import RabbitConsumer

from .conftest import LIMIT, Bench, eventually, job_of

ODD_NAMES = ["a b", "ü", "a/b", "..", "amq.x", "x.high", "%41", "~x", "日" * 200, "q" * 200, "{tag}", "*", "'\"\\"]


async def test_a_dispatched_job_is_received(bench: Bench) -> None:
    (job,) = await bench.send()

    async with bench.transport.consume(["mail"], prefetch=10) as consumer:
        (delivery,) = await bench.receive(consumer, 1)

    assert (job_of(delivery), delivery.queue, delivery.level) == (job, "mail", Level.NORMAL)


async def test_a_consumer_that_waits_receives_what_comes_later(bench: Bench) -> None:
    async with bench.transport.consume(["mail"], prefetch=10) as consumer:
        waiting = asyncio.create_task(bench.receive(consumer, 1))
        (job,) = await bench.send()
        (delivery,) = await waiting

    assert job_of(delivery) == job


async def test_high_comes_before_normal_before_low(bench: Bench) -> None:
    sent = {level: (await bench.send(2, level=level)) for level in reversed(LEVELS)}

    async with bench.transport.consume(["mail"], prefetch=100) as consumer:
        if bench.name == "rabbitmq":  # it pushes: all of them have to be here before the order shows
            await eventually(lambda: _holds(bench, consumer, 6))
        received = await bench.receive(consumer, 6)

    assert [each.level for each in received] == [level for level in LEVELS for _ in range(2)]
    assert [job_of(each) for each in received] == [job for level in LEVELS for job in sent[level]]


async def _holds(bench: Bench, consumer: Consumer, count: int) -> bool:
    assert isinstance(consumer, RabbitConsumer)
    (depth,) = await bench.transport.depths(["mail"])
    held = sum(len(each.buffer) for level in LEVELS for each in consumer._subscriptions[level])
    return depth.ready == 0 and held == count


async def test_what_is_acknowledged_is_gone(bench: Bench) -> None:
    await bench.send(5)
    async with bench.transport.consume(["mail"], prefetch=10) as consumer:
        await bench.settle(consumer, await bench.receive(consumer, 5))

    async with bench.transport.consume(["mail"], prefetch=10) as consumer:
        assert await bench.is_empty(consumer)


async def test_what_is_not_acknowledged_is_delivered_again_after_the_consumer_closed(bench: Bench) -> None:
    jobs = await bench.send(3)
    async with bench.transport.consume(["mail"], prefetch=10) as consumer:
        received = await bench.receive(consumer, 3)
        await bench.settle(consumer, received[:1])

    async with bench.transport.consume(["mail"], prefetch=10) as consumer:
        again = await bench.receive(consumer, 2)

    assert {job_of(each) for each in again} == set(jobs) - {job_of(received[0])}


async def test_acknowledging_out_of_order_touches_no_other_delivery(bench: Bench) -> None:
    await bench.send(6)
    async with bench.transport.consume(["mail"], prefetch=10) as consumer:
        received = await bench.receive(consumer, 6)
        kept = {job_of(received[0]), job_of(received[3])}
        if bench.is_database:
            return  # a claim, and no acknowledgement, takes a job there
        await consumer.acknowledge([received[5], received[2]])
        await consumer.acknowledge([received[1], received[4], received[1]])

    async with bench.transport.consume(["mail"], prefetch=10) as consumer:
        assert {job_of(each) for each in await bench.receive(consumer, 2)} == kept


async def test_what_is_given_back_comes_again_however_often(bench: Bench) -> None:
    (job,) = await bench.send()

    async with bench.transport.consume(["mail"], prefetch=10) as consumer:
        for _ in range(5):
            (delivery,) = await bench.receive(consumer, 1)
            assert job_of(delivery) == job
            await consumer.give_back([delivery])
        assert job_of((await bench.receive(consumer, 1))[0]) == job


async def test_a_thousand_messages_go_in_one_dispatch(bench: Bench) -> None:
    jobs = await bench.send(1000)

    async with bench.transport.consume(["mail"], prefetch=1000) as consumer:
        received = await bench.receive(consumer, 1000, most=300)
        await bench.settle(consumer, received)

    assert {job_of(each) for each in received} == set(jobs)


async def test_no_more_than_the_prefetch_of_a_level_is_taken(bench: Bench) -> None:
    await bench.send(10)
    async with bench.transport.consume(["mail"], prefetch=4) as first:
        taken = await bench.receive(first, 4)
        async with bench.transport.consume(["mail"], prefetch=100) as second:
            rest = await bench.receive(second, 6)
            if not bench.is_database:  # there, the claim decides which worker has a job
                assert not {job_of(each) for each in taken} & {job_of(each) for each in rest}


async def test_two_consumers_share(broker: Bench) -> None:
    jobs = await broker.send(20)

    async with (
        broker.transport.consume(["mail"], prefetch=10) as first,
        broker.transport.consume(["mail"], prefetch=10) as second,
    ):
        received = [*await broker.receive(first, 10), *await broker.receive(second, 10)]

    assert sorted(job_of(each) for each in received) == sorted(jobs)


async def test_a_consumer_takes_on_more_queues(bench: Bench) -> None:
    await bench.send(queue="mail")
    other = await bench.send(queue="other")

    async with bench.transport.consume(["mail"], prefetch=10) as consumer:
        (first,) = await bench.receive(consumer, 1)
        await consumer.add(["other"])
        (second,) = await bench.receive(consumer, 1)

    assert (first.queue, second.queue) == ("mail", "other")
    assert [job_of(second)] == other


async def test_a_consumer_receives_only_its_queues(bench: Bench) -> None:
    await bench.send(queue="other")
    mine = await bench.send(queue="mail")

    async with bench.transport.consume(["mail"], prefetch=10) as consumer:
        assert [job_of((await bench.receive(consumer, 1))[0])] == mine


@pytest.mark.parametrize("name", ODD_NAMES, ids=lambda name: ascii(name)[:12])
async def test_a_queue_may_have_an_odd_name(bench: Bench, name: str) -> None:
    (job,) = await bench.send(queue=name)

    async with bench.transport.consume([name], prefetch=10) as consumer:
        (delivery,) = await bench.receive(consumer, 1)

    assert (delivery.queue, job_of(delivery)) == (name, job)
    assert [depth.queue for depth in await bench.transport.depths([name])] == [name]


async def test_depths_count_what_is_ready(bench: Bench) -> None:
    await bench.send(3)
    await bench.send(2, level=Level.HIGH)

    async def counted() -> bool:
        return [each.ready for each in await bench.transport.depths(["mail"])] == [5]

    await eventually(counted)


async def test_a_queue_that_is_not_there_has_no_depth(broker: Bench) -> None:
    assert await broker.transport.depths(["never"]) == []


async def test_a_check_after_declare_finds_everything_in_order(bench: Bench) -> None:
    await bench.transport.declare(["mail", "other"])
    await bench.transport.declare(["mail", "other"])  # again: nothing changes

    findings = await bench.transport.check(["mail", "other"])

    bad = [each for each in findings if not each.ok and each.subject != "append-only file"]
    assert findings
    assert bad == []


async def test_a_check_names_what_is_missing_and_makes_nothing(broker: Bench) -> None:
    for _ in range(2):
        findings = await broker.transport.check(["mail"])

        assert any(not each.ok and each.advice == "windlass broker setup" for each in findings)


async def test_an_empty_dispatch_is_nothing(bench: Bench) -> None:
    assert await bench.transport.dispatch([]) == frozenset()
    assert await bench.transport.bury([]) == frozenset()


async def test_a_cancelled_receive_loses_nothing(bench: Bench) -> None:
    async with bench.transport.consume(["mail"], prefetch=10) as consumer:
        waiting = asyncio.create_task(consumer.receive(10))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        (job,) = await bench.send()
        assert job_of((await bench.receive(consumer, 1))[0]) == job


async def test_trimming_drops_nothing_that_is_young(bench: Bench) -> None:
    jobs = await bench.send(3)
    await bench.transport.trim(["mail"], older=3600.0)

    async with bench.transport.consume(["mail"], prefetch=10) as consumer:
        assert {job_of(each) for each in await bench.receive(consumer, 3)} == set(jobs)


# Dead letters

GARBAGE = b"\x00\xff{not json\r\n" + bytes(range(256))


async def test_bytes_that_are_no_envelope_are_carried_untouched(broker: Bench) -> None:
    await broker.transport.dispatch([broker.message(payload=GARBAGE)])

    async with broker.transport.consume(["mail"], prefetch=10) as consumer:
        (delivery,) = await broker.receive(consumer, 1)

    assert delivery.payload == GARBAGE


async def test_a_buried_delivery_is_a_dead_letter_with_its_reason_and_its_bytes(broker: Bench) -> None:
    await broker.transport.dispatch([broker.message(payload=GARBAGE)])

    async with broker.transport.consume(["mail"], prefetch=10) as consumer:
        await consumer.bury([(each, "not JSON: ü") for each in await broker.receive(consumer, 1)])
        assert await broker.is_empty(consumer)
    (letter,) = await broker.transport.dead_letters(10)

    assert (letter.payload, letter.reason, letter.queue, letter.job) == (GARBAGE, "not JSON: ü", "mail", None)


async def test_a_dead_job_is_buried_with_its_id(broker: Bench) -> None:
    message = broker.message()

    assert await broker.transport.bury([(message, "permanent")]) == {0}
    (letter,) = await broker.transport.dead_letters(10)

    assert (letter.job, letter.reason, letter.payload) == (message.job, "permanent", message.payload)
    assert letter.at is not None


async def test_a_listing_removes_nothing_and_ids_stay(broker: Bench) -> None:
    await broker.transport.bury([(broker.message(), f"reason {at}") for at in range(5)])

    listings = [await broker.transport.dead_letters(10) for _ in range(4)]

    assert [len(listing) for listing in listings] == [5] * 4
    assert len({frozenset(letter.id for letter in listing) for listing in listings}) == 1
    assert len(await broker.transport.dead_letters(2)) == 2
    await eventually(lambda: _counts_dead_letters(broker, 5))  # what a listing took goes back a moment later


async def _counts_dead_letters(broker: Bench, count: int) -> bool:
    return await broker.transport.count_dead_letters() == count


async def test_dead_letters_are_removed_by_id(broker: Bench) -> None:
    await broker.transport.bury([(broker.message(), f"reason {at}") for at in range(5)])
    letters = await broker.transport.dead_letters(10)
    chosen = [letter.id for letter in letters if letter.reason in ("reason 1", "reason 3")]

    assert await broker.transport.remove_dead_letters([*chosen, "no such id"]) == 2
    assert await broker.transport.remove_dead_letters(chosen) == 0
    assert {each.reason for each in await broker.transport.dead_letters(10)} == {"reason 0", "reason 2", "reason 4"}


async def test_without_dead_letters_the_list_is_empty(bench: Bench) -> None:
    assert await bench.transport.dead_letters(10) == []
    assert await bench.transport.count_dead_letters() == 0
    assert await bench.transport.remove_dead_letters(["x"]) == 0


async def test_many_dispatches_at_once_are_all_confirmed(bench: Bench) -> None:
    async with asyncio.timeout(LIMIT):
        sent = await asyncio.gather(*(bench.send(20, queue=f"q{at % 3}") for at in range(10)))

    async with bench.transport.consume(["q0", "q1", "q2"], prefetch=300) as consumer:
        received = await bench.receive(consumer, 200)
    assert {job_of(each) for each in received} == {job for jobs in sent for job in jobs}

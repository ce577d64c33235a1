"""Enqueue by name: checked as the job type's own enqueue is, all calls or none, and repeated without a second job."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from windlass import EnqueueError, IdempotencyConflict, InvalidInput, InvalidOption, NamedCall, UnknownType, Windlass
from windlass import limit as limited
from windlass.testing.clock import ManualClock

from .rig import PATIENCE, Database, working

CALLERS = 64
JOBS = 5


def declare(app: Windlass) -> None:
    @app.job(queue="mail", priority=3, max_attempts=7, unique="to", limits=[limited("domain", 2)])
    async def send(to: str, copies: int = 1, domain: str = "example.org") -> str:
        return to

    @app.job
    async def fetch(url: str) -> str:
        return url

    @app.job
    async def parse(url: str) -> int:
        return len(url)

    app.pipeline("site", fetch, parse)


def fetches(count: int = JOBS, **options: Any) -> list[NamedCall]:
    return [NamedCall("fetch", {"url": f"https://example.org/{n}"}, options) for n in range(count)]


async def total(app: Windlass) -> int:
    return sum((await app.acounts()).values())


async def test_a_call_by_name_makes_the_job_that_its_type_makes(app: Windlass) -> None:
    declare(app)
    options = {"tenant": "acme", "priority": 9, "run_at": "2999-01-01T00:00:00Z", "limits": {"domain": "other.org"}}

    handle, plain = await app.aenqueue_named(
        [NamedCall("send", {"to": "ann", "copies": 2}, options), NamedCall("send", {"to": "bob"})]
    )

    job = await handle.arecord()
    assert (job.type, job.queue, job.tenant, job.priority, job.max_attempts) == ("send", "mail", "acme", 9, 7)
    assert (job.arguments(), job.key) == ({"to": "ann", "copies": 2}, "ann")
    assert (job.limits, job.run_at) == (["domain:other.org"], datetime(2999, 1, 1, tzinfo=UTC))
    assert (await plain.arecord()).limits == ["domain:example.org"]


async def test_a_pipeline_is_called_by_its_own_name(app: Windlass) -> None:
    declare(app)
    [job] = await app.aenqueue_named([NamedCall("site", {"url": "abc"})])

    async with working(app):
        assert await job.aresult(timeout=PATIENCE) == 3


async def test_a_blocking_program_has_the_same_call(database: Database) -> None:
    app = database.app()
    declare(app)

    jobs = await asyncio.to_thread(app.enqueue_named, fetches(2))

    assert [(await job.arecord()).arguments()["url"][-1] for job in jobs] == ["0", "1"]


@pytest.mark.parametrize(
    ("wrong", "kind", "path"),
    [
        (NamedCall("send", {"to": 5}), InvalidInput, ".input.to"),
        (NamedCall("send", {"to": "ann", "copy": 5}), InvalidInput, ".input.copy"),
        (NamedCall("send", {}), InvalidInput, ".input.to"),
        (NamedCall("send", {"to": "a\0"}), InvalidInput, ".input.to"),
        (NamedCall("send", ["ann"]), InvalidInput, ".input"),  # type: ignore[arg-type]
        (NamedCall("send", {5: "ann"}), InvalidInput, ".input"),  # type: ignore[dict-item]
        (NamedCall("site", {"url": 7}), InvalidInput, ".input.url"),
        (NamedCall("send", {"to": "ann"}, {"queu": "mail"}), InvalidOption, ".options"),
        (NamedCall("send", {"to": "ann"}, {"queue": 5}), InvalidOption, ".options"),
        (NamedCall("send", {"to": "ann"}, {"unique": [["to"]]}), InvalidOption, ".options"),
        (NamedCall("send", {"to": "ann"}, {"run_at": "tomorrow"}), InvalidOption, ".options"),
        (NamedCall("send", {"to": "ann"}, {"run_at": "2030-01-01T00:00:00"}), InvalidOption, ".options"),
        (NamedCall("send", {"to": "ann"}, {"limits": {"domain": []}}), InvalidOption, ".options"),
        (NamedCall("send", {"to": "ann"}, {"conn": "x"}), InvalidOption, ".options"),
        (NamedCall("send", {"to": "ann"}, {"idempotency_key": "x"}), InvalidOption, ".options"),
        (NamedCall("send", {"to": "ann"}, ["queue"]), InvalidOption, ".options"),  # type: ignore[arg-type]
        (NamedCall("sned", {"to": "ann"}), UnknownType, ".type"),
        ({"type": "send"}, EnqueueError, ""),
    ],
)
async def test_one_wrong_call_refuses_all_and_names_its_place(
    app: Windlass, wrong: Any, kind: type[EnqueueError], path: str
) -> None:
    declare(app)

    with pytest.raises(kind, match=r"^call 2: .*nothing was enqueued$") as among:
        await app.aenqueue_named([*fetches(2), wrong])
    with pytest.raises(kind) as alone:
        await app.aenqueue_named([wrong])

    assert (among.value.path, alone.value.path) == (f"$[2]{path}", f"${path}")
    assert await total(app) == 0


async def test_an_unknown_type_is_answered_with_a_similar_name(app: Windlass) -> None:
    declare(app)

    with pytest.raises(UnknownType, match="did you mean 'send'"):
        await app.aenqueue_named([NamedCall("sned")])


@pytest.mark.parametrize("calls", [[], "send", {"type": "send"}, None])
async def test_what_is_no_list_of_calls_is_refused(app: Windlass, calls: Any) -> None:
    with pytest.raises(EnqueueError, match="enqueue_named"):
        await app.aenqueue_named(calls)


# The idempotency key of the whole call


async def test_a_repeated_call_returns_its_jobs_in_their_order(app: Windlass) -> None:
    declare(app)
    first = await app.aenqueue_named(fetches(), idempotency_key="k")

    again = await app.aenqueue_named(fetches(), idempotency_key="k")

    assert again == first
    assert all(job.existing for job in again)
    assert not any(job.existing for job in first)
    assert await total(app) == JOBS


OTHERS: Mapping[str, list[NamedCall]] = {
    "another input": [*fetches(JOBS - 1), NamedCall("fetch", {"url": "another"})],
    "another type": [*fetches(JOBS - 1), NamedCall("parse", {"url": f"https://example.org/{JOBS - 1}"})],
    "other options": [*fetches(JOBS - 1), NamedCall("fetch", fetches()[-1].input, {"priority": 1})],
    "another order": fetches()[::-1],
    "fewer": fetches(JOBS - 1),
    "more": fetches(JOBS + 1),
    "another tenant beside the first": [NamedCall("fetch", {"url": "x"}, {"tenant": "acme"}), *fetches()],
}


@pytest.mark.parametrize("name", OTHERS)
async def test_a_key_with_other_calls_is_refused_and_writes_nothing(app: Windlass, name: str) -> None:
    declare(app)
    await app.aenqueue_named(fetches(), idempotency_key="k")

    with pytest.raises(IdempotencyConflict, match="'k' was used for another request"):
        await app.aenqueue_named(OTHERS[name], idempotency_key="k")

    assert await total(app) == JOBS


async def test_a_key_belongs_to_its_tenant(app: Windlass) -> None:
    declare(app)
    await app.aenqueue_named(fetches(), idempotency_key="k")

    jobs = await app.aenqueue_named(fetches(2, tenant="acme"), idempotency_key="k")

    assert not any(job.existing for job in jobs)


async def test_a_key_of_calls_for_two_tenants_is_used_for_each_of_them(app: Windlass) -> None:
    """Places are counted per tenant: the only job of a second call has the key of the tenant's first job before."""
    declare(app)
    await app.aenqueue_named([*fetches(1, tenant="acme"), *fetches(1)], idempotency_key="k")

    for calls in (fetches(1), fetches(1, tenant="acme")):
        with pytest.raises(IdempotencyConflict):
            await app.aenqueue_named(calls, idempotency_key="k")


async def test_a_key_of_a_call_and_a_key_of_one_job_are_apart(app: Windlass) -> None:
    declare(app)
    job = await app.aenqueue_named(fetches(1), idempotency_key="k")

    @app.job
    async def tick() -> None: ...

    assert await tick.options(idempotency_key="k#0").aenqueue() != job[0]


async def test_jobs_with_one_unique_key_are_one_job_in_a_repeated_call_too(app: Windlass) -> None:
    declare(app)
    calls = [NamedCall("send", {"to": "ann"}), NamedCall("send", {"to": "ann", "copies": 2})]
    first = await app.aenqueue_named(calls, idempotency_key="k")

    again = await app.aenqueue_named(calls, idempotency_key="k")

    assert first[0] == first[1] == again[0] == again[1]
    assert await total(app) == 1


async def test_after_its_window_the_key_is_free(still_database: Database) -> None:
    clock = ManualClock()
    app = still_database.app(clock=clock)
    declare(app)
    await app.aenqueue_named(fetches(), idempotency_key="k")

    clock.advance("25h")
    await still_database.move(clock)

    assert not any(job.existing for job in await app.aenqueue_named(fetches(2), idempotency_key="k"))


async def test_concurrent_callers_with_one_key_make_one_set_of_jobs(database: Database) -> None:
    """The race: all callers see no key and take the same ones. Each upsert waits for the commit of the holder."""
    apps = [database.app() for _ in range(8)]
    for app in apps:
        declare(app)

    answers = await asyncio.gather(
        *(apps[n % len(apps)].aenqueue_named(fetches(), idempotency_key="k") for n in range(CALLERS))
    )

    assert len({tuple(job.id for job in answer) for answer in answers}) == 1
    assert sum(not job.existing for answer in answers for job in answer) == JOBS
    assert await total(apps[0]) == JOBS


async def test_of_concurrent_callers_with_one_key_and_two_bodies_one_body_is_written(database: Database) -> None:
    apps = [database.app() for _ in range(8)]
    for app in apps:
        declare(app)
    bodies = [fetches(), fetches()[::-1]]

    answers = await asyncio.gather(
        *(apps[n % len(apps)].aenqueue_named(bodies[n % 2], idempotency_key="k") for n in range(CALLERS)),
        return_exceptions=True,
    )

    refused = [answer for answer in answers if isinstance(answer, IdempotencyConflict)]
    assert len(refused) == CALLERS // 2
    assert await total(apps[0]) == JOBS

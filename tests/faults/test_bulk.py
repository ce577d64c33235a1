"""Many jobs at once in a SQLite file: all of them or none, and the file is not kept from beats and finishes."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from windlass import State, Windlass
from windlass.errors import EnqueueError
from windlass.model.job import NewJob, new_id
from windlass.store.parts import encoding
from windlass.store.sqlite import bulk

from .rig import FaultLab

MANY = 10_000


def new_jobs(count: int, **options: Any) -> list[NewJob]:
    return [NewJob(id=new_id(), type="plain", input='{"a":1}', max_attempts=4, **options) for _ in range(count)]


class Watching:
    """Checks, each time that jobs are made into JSON, whether another process could write now."""

    def __init__(self, lab: FaultLab) -> None:
        self._lab = lab
        self.free: list[bool] = []

    def encode(self, value: object) -> bytes:
        self.free.append(self._lab.free())
        return msgspec.json.encode(value)


@pytest.mark.parametrize("count", [1_000, MANY])
def test_others_write_while_many_jobs_are_prepared(
    sqlite_lab: FaultLab, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    watching = Watching(sqlite_lab)
    monkeypatch.setattr(encoding, "ENCODER", watching)

    sqlite_lab.ask(lambda store: store.enqueue(new_jobs(count)))

    assert sqlite_lab.counts() == {State.QUEUED: count}
    assert watching.free == [True] * (count // bulk.PAGE)


def test_an_enqueue_that_would_lock_the_file_too_long_is_refused_whole(sqlite_lab: FaultLab) -> None:
    app = Windlass(sqlite_lab.url, lease="3ms", beat="1ms", margin="1ms")
    for jobs in (
        new_jobs(MANY),
        [msgspec.structs.replace(each, idempotency=None, parent=new_id()) for each in new_jobs(MANY)],
    ):
        with pytest.raises(EnqueueError, match=r"10000 jobs at once .*a third of the lease.* several calls"):
            app._client.ask(lambda store, jobs=jobs: store.enqueue(jobs))  # type: ignore[misc]
    app.close()

    assert sqlite_lab.counts() == {}


def test_a_staged_job_is_as_any_other(sqlite_lab: FaultLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "STAGE_FROM", 3)
    at = datetime.now(UTC) + timedelta(days=3)
    options: list[dict[str, Any]] = [
        {},
        {"delay": 60.0, "queue": "mail", "tenant": "t", "priority": 7, "limits": ("a", "b")},
        {"run_at": at, "pipeline": "line", "phase": "first", "phase_rank": 2, "trace": "00-1"},
    ]
    plain = [new_jobs(1, **each)[0] for each in options]
    staged = [new_jobs(1, **each)[0] for each in options]
    for job in plain:
        sqlite_lab.ask(lambda store, job=job: store.enqueue([job]))  # type: ignore[misc]
    sqlite_lab.ask(lambda store: store.enqueue(staged))

    def stored(job: NewJob) -> dict[str, Any]:
        record = sqlite_lab.find(job.id)
        after = (record.run_at - record.created_at).total_seconds() if job.run_at is None else record.run_at
        left_out = {"id": None, "run_at": after, "created_at": None, "updated_at": None}
        return msgspec.structs.asdict(record) | left_out

    assert [stored(job) for job in staged] == [stored(job) for job in plain]
    age = datetime.now(UTC) - sqlite_lab.find(staged[0].id).created_at
    assert timedelta() <= age < timedelta(minutes=1)


async def test_of_many_enqueues_at_once_each_is_whole(sqlite_lab: FaultLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "STAGE_FROM", 3)
    app = Windlass(sqlite_lab.url)

    @app.job
    async def work(n: int) -> int:
        return n

    batches = await asyncio.gather(*(app.aenqueue_many([work.call(n)] * 10) for n in range(8)))
    await app.aclose()

    found = Counter(row[0] for row in sqlite_lab.sql("SELECT input ->> 'n' FROM {}jobs"))
    assert found == dict.fromkeys(range(8), 10)
    assert len({job.id for batch in batches for job in batch}) == 80

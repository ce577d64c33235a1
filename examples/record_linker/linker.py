"""Links records to entities of Wikidata: projects, CSV files, one job per record. `python linker.py` runs all of it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Annotated, Any, TypeVar

import sqlalchemy as sa
import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from pydantic import BaseModel, StringConstraints
from sqlalchemy.ext.asyncio import AsyncConnection

from entries import Entry, TooManyRows, Unreadable, read_entries
from projects import Status, entries, make_engine, metadata, projects, tasks
from scoring import ENOUGH, rank
from wikidata import PER_SECOND, Busy, Refused, Wikidata
from wikidata_server import WikidataServer
from windlass import Context, Snooze, Windlass, delays, limit, unique

A = TypeVar("A")
T = TypeVar("T")

WORKER = os.environ.get("LINKER_WORKER", "on") == "on"  # off: `windlass worker linker.py` runs the jobs
LARGEST = 50_000_000  # bytes of an upload
AT_ONCE = 10_000  # jobs of one call: a project may have any number of them, and a call holds its jobs in memory
STALE = timedelta(hours=1)  # a task that is QUEUED for so long may have lost its job

app = Windlass()
engine = make_engine(app.settings.url)
wikidata = cache(Wikidata)  # one per process
# A token may be used a tenth of a second late, and the request travels. Even so, no second has more than PER_SECOND.
app.rate("wikidata", PER_SECOND, every="1.2s", burst=1)


class NoProject(HTTPException):
    """There is no such project, or not any more."""

    def __init__(self) -> None:
        super().__init__(404, "there is no such project")


# The jobs


@app.job(type="entity.fail")
async def fail(ctx: Context, id: str, input: dict[str, int], error: dict[str, Any] | None = None) -> None:
    await end_task(ctx, id, input["task_id"], Status.FAILED, (error or {}).get("message") or "the job is dead")


@app.job(type="entity.cancel")
async def cancel_task(ctx: Context, id: str, input: dict[str, int]) -> None:
    await end_task(ctx, id, input["task_id"], Status.CANCELLED, "an operator cancelled the job")


async def end_task(ctx: Context, job: str, task: int, status: Status, why: str) -> None:
    """Only if no later match gave the task another job."""
    async with ctx.transaction() as tx:
        await tx.execute(
            "UPDATE linker_tasks SET status = $1, error = $2, updated_at = CURRENT_TIMESTAMP "
            "WHERE id = $3 AND job_id = $4 AND status = 'QUEUED'",
            *(status.value, why, task, job),
        )


@app.job(
    type="entity.match",
    max_attempts=3,
    retry=delays("5s", "30s"),
    timeout="2m",
    unique=unique("task_id", states="unfinished"),
    limits=[limit("matching", 2 * PER_SECOND)],  # those that wait for a token in a handler
    permanent=[Refused],
    on_dead=fail,
    on_cancelled=cancel_task,
)
async def match(ctx: Context, project_id: int, task_id: int, dataset_entry_id: int) -> str | None:
    chosen = sa.select(*(entries.c[name] for name in Entry._fields)).join(tasks)
    chosen = chosen.where(entries.c.id == dataset_entry_id, tasks.c.id == task_id, tasks.c.status == Status.QUEUED)
    async with engine.connect() as connection:
        row = (await connection.execute(chosen)).one_or_none()
    found = None if row is None else await find(ctx, Entry(*row))
    async with ctx.transaction() as tx:
        if found is not None and await tx.fetch(
            "UPDATE linker_tasks SET status = 'COMPLETED', entity = $1, score = $2, candidates = $3, error = NULL, "
            "updated_at = CURRENT_TIMESTAMP WHERE id = $4 AND status = 'QUEUED' RETURNING id",
            *found,
            task_id,
        ):
            return found[0]
        # The race: a cancel, and a match right after it that finds this job unfinished and makes no new one. This lock
        # lets that match wait until the job has ended. If the match was first, the task is QUEUED again.
        locked = "UPDATE linker_tasks SET updated_at = updated_at WHERE id = $1 RETURNING status"
        if [task["status"] for task in await tx.fetch(locked, task_id)] == [Status.QUEUED]:
            raise Snooze(0)
    ctx.log.warning("task %d is gone or not QUEUED any more: nothing was written", task_id)
    return None


async def find(ctx: Context, entry: Entry) -> tuple[str | None, float | None, str]:
    """The best entity if it is good enough, its score, and all candidates as JSON."""
    # The client is made before the token is taken: that lasts for a while in each new process.
    ids = await ask(ctx, wikidata().search, entry.name)
    ranked = rank(entry, await ask(ctx, wikidata().look_up, ids) if ids else [])
    candidates = [{"id": each.id, "name": each.names[0] if each.names else "", "score": s} for s, each in ranked]
    score, best = ranked[0] if ranked else (None, None)
    entity = best.id if best is not None and score is not None and score >= ENOUGH else None
    return entity, score, json.dumps(candidates)


async def ask(ctx: Context, question: Callable[[A], Awaitable[T]], about: A) -> T:
    """One request at the shared rate. A 429 stops all jobs for as long as it says, and burns no attempt."""
    await ctx.acquire("wikidata")
    try:
        return await question(about)
    except Busy as busy:
        for name in ("wikidata", "matching"):  # those that run, and those that would start
            await ctx.hold_back(name, busy.wait)
        raise Snooze(busy.wait) from busy


@app.job(type="entity.sweep")
async def sweep(ctx: Context) -> int:
    """Give each task that lost its job a new one. A task whose job is unfinished keeps it."""
    lost = [tasks.c.status == Status.QUEUED, tasks.c.updated_at < datetime.now(UTC) - STALE]
    async with engine.connect() as connection:
        found = list(await connection.scalars(sa.select(tasks.c.project_id).where(*lost).distinct()))
    count = 0
    for project in found:
        with suppress(NoProject):  # deleted in the meantime
            count += await enqueue(project, *lost)
    if count:
        ctx.log.warning("%d tasks were QUEUED for over an hour without a job, and have one again", count)
    return count


app.schedule("sweep-tasks", sweep.call(), every="15m")


async def enqueue(project_id: int, *which: sa.ColumnElement[bool]) -> int:
    """Make these tasks QUEUED and enqueue a job for each, or neither. Returns the number of new jobs."""
    changed = sa.update(tasks).where(tasks.c.project_id == project_id, *which)
    changed = changed.values(status=Status.QUEUED, error=None, updated_at=sa.func.current_timestamp())
    noted = sa.update(tasks).where(tasks.c.id == sa.bindparam("task")).values(job_id=sa.bindparam("job"))
    async with engine.begin() as connection:
        await lock(connection, project_id)
        rows = (await connection.execute(changed.returning(tasks.c.id, tasks.c.entry_id))).all()
        count = 0
        for first in range(0, len(rows), AT_ONCE):
            part = rows[first : first + AT_ONCE]
            jobs = await app.aenqueue_many([match.call(project_id, *row) for row in part], conn=connection)
            new = [
                {"task": row.id, "job": str(job.id)} for row, job in zip(part, jobs, strict=True) if not job.existing
            ]
            if new:
                await connection.execute(noted, new)
            count += len(new)
    return count


async def lock(connection: AsyncConnection, project_id: int) -> None:
    """Let changes of one project's tasks happen one after the other: they lock many rows, and each in its own order."""
    locked = sa.update(projects).where(projects.c.id == project_id).values(name=projects.c.name)
    if await connection.scalar(locked.returning(projects.c.id)) is None:
        raise NoProject


# The routes


class NewProject(BaseModel):
    name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]


class Project(BaseModel):
    id: int
    name: str
    tasks: dict[Status, int]


class Task(BaseModel):
    id: int
    dataset_entry_id: int
    name: str
    status: Status
    entity: str | None
    score: float | None
    candidates: list[dict[str, Any]]
    error: str | None
    job_id: str | None


@asynccontextmanager
async def make_tables(_: object) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    yield
    await wikidata().close()
    await engine.dispose()


api = FastAPI(title="record_linker", lifespan=app.lifespan(worker=WORKER, migrate=True, also=make_tables))


@api.post("/projects", status_code=201)
async def create(new: NewProject) -> Project:
    async with engine.begin() as connection:
        id = await connection.scalar(projects.insert().values(name=new.name).returning(projects.c.id))
    return await show(id or 0)


@api.get("/projects/{id}")
async def show(id: int) -> Project:
    counted = sa.select(tasks.c.status, sa.func.count()).where(tasks.c.project_id == id).group_by(tasks.c.status)
    async with engine.connect() as connection:
        name = await connection.scalar(sa.select(projects.c.name).where(projects.c.id == id))
        if name is None:
            raise NoProject
        counts = {Status(status): count for status, count in await connection.execute(counted)}
    return Project(id=id, name=name, tasks=counts)


@api.post("/projects/{id}/entries", status_code=201)
async def upload(id: int, request: Request) -> dict[str, int]:
    file = bytearray()
    async for chunk in request.stream():
        file += chunk
        if len(file) > LARGEST:
            raise HTTPException(413, f"a file has {LARGEST:,} bytes at most; split it")
    try:
        found = await asyncio.to_thread(read_entries, bytes(file))
    except Unreadable as error:
        raise HTTPException(413 if isinstance(error, TooManyRows) else 422, str(error)) from None
    async with engine.begin() as connection:
        await lock(connection, id)
        newest = await connection.scalar(sa.select(sa.func.max(entries.c.id)).where(entries.c.project_id == id))
        await connection.execute(entries.insert(), [{"project_id": id, **entry._asdict()} for entry in found])
        # Not `NOT IN` the entries that have a task: beyond 260,000 of them PostgreSQL compares each with each.
        without = sa.select(entries.c.project_id, entries.c.id)
        without = without.where(entries.c.project_id == id, entries.c.id > (newest or 0))
        await connection.execute(tasks.insert().from_select(["project_id", "entry_id"], without))
    return {"entries": len(found)}


@api.post("/projects/{id}/match", status_code=202)
async def start(id: int, response: Response) -> dict[str, int]:
    """Queue all tasks but those that are COMPLETED."""
    response.headers["Location"] = f"/projects/{id}"
    return {"jobs": await enqueue(id, tasks.c.status != Status.COMPLETED)}


@api.post("/projects/{id}/cancel")
async def cancel(id: int) -> dict[str, int]:
    """Cancel what is QUEUED. Its jobs find that, and end."""
    changed = sa.update(tasks).where(tasks.c.project_id == id, tasks.c.status == Status.QUEUED)
    changed = changed.values(status=Status.CANCELLED, updated_at=sa.func.current_timestamp())
    async with engine.begin() as connection:
        await lock(connection, id)
        found = await connection.execute(changed)
    return {"cancelled": found.rowcount}


@api.delete("/projects/{id}", status_code=204)
async def delete(id: int) -> None:
    async with engine.begin() as connection:
        await lock(connection, id)
        for table in (tasks, entries):
            await connection.execute(sa.delete(table).where(table.c.project_id == id))
        await connection.execute(sa.delete(projects).where(projects.c.id == id))


@api.get("/projects/{id}/tasks")
async def show_tasks(id: int, status: Status | None = None, above: int = 0, count: int = 100) -> list[Task]:
    """A page of tasks by id."""
    chosen = sa.select(tasks, entries.c.name).join(entries).where(tasks.c.project_id == id, tasks.c.id > above)
    if status is not None:
        chosen = chosen.where(tasks.c.status == status)
    async with engine.connect() as connection:
        rows = await connection.execute(chosen.order_by(tasks.c.id).limit(min(count, 1_000)))
        return [view(row._mapping) for row in rows]


def view(row: sa.RowMapping) -> Task:
    candidates = json.loads(row["candidates"] or "[]")
    return Task(**{**row, "dataset_entry_id": row["entry_id"], "candidates": candidates})


if __name__ == "__main__":
    with ExitStack() as stack:
        if "LINKER_WIKIDATA_URL" not in os.environ:
            os.environ["LINKER_WIKIDATA_URL"] = stack.enter_context(WikidataServer(busy=100)).url
            print("LINKER_WIKIDATA_URL is not set: a stand-in answers, which knows no entity and makes them up")
        uvicorn.run(api, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")))

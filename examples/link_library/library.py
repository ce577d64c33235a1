"""A library of links: imports of bookmarks, one enrichment per link for ever. `python library.py` runs all of it."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import sqlalchemy as sa
import uvicorn
from fastapi import Depends, FastAPI, Header, HTTPException, Query, Request
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession

from bookmarks import Bookmark, NoBookmarks, domain_of, read_bookmarks
from enrich import Blocked, look_up
from tables import candidates, imports, links, make_engine, metadata, placements
from windlass import (
    Context,
    Dead,
    FetchRefused,
    JobHandle,
    JobNotFound,
    State,
    TransitionRefused,
    Windlass,
    limit,
    unique,
)

TOKENS = dict(pair.split(":", 1) for pair in os.environ.get("LIBRARY_TOKENS", "ann:ann-demo,bob:bob-demo").split(","))
DEAD_AFTER = int(os.environ.get("LIBRARY_DEAD_AFTER", "1"))  # refusals by a site until its link is dead
LARGEST = 50_000_000  # bytes of an upload
BATCH = 500  # links
NEW_LINK = "library_links (url) VALUES ({}) ON CONFLICT DO NOTHING"

app = Windlass()
engine = make_engine(app.settings.url)


# The jobs


@app.job(
    queue="imports",
    labels={"cancelled": "canceled", "dead": "failed"},
    isolation="process",  # Python's parser needs hours for some files, and a thread cannot be stopped
    memory="2G",
)
async def import_bookmarks(ctx: Context) -> int:
    id = str(ctx.job.id)
    async with engine.connect() as connection:
        user, file = (await connection.execute(sa.select(imports.c.user_id, imports.c.file).filter_by(id=id))).one()
    try:
        found = list(read_bookmarks(file))
    except NoBookmarks as error:
        raise Dead(str(error)) from error
    ctx.progress(0, total=len(found), failed=0)
    failed = 0
    for start in range(0, len(found), BATCH):  # each batch may be written twice, and changes nothing the second time
        if ctx.cancelled:
            return start
        batch = found[start : start + BATCH]
        await write_batch(user, batch)
        await app.aenqueue_many([enrich.call(link) for _, _, link in batch if link is not None])
        failed += sum(link is None for _, _, link in batch)
        ctx.progress(start + len(batch) - failed, failed=failed)
    async with ctx.transaction() as tx:
        await tx.execute("UPDATE library_imports SET file = $1 WHERE id = $2", b"", id)
    return len(found)


async def write_batch(user: str, batch: list[Bookmark]) -> None:
    """Write links and placements. They are sorted, so that two imports lock common rows in one order."""
    rows = [
        {"id": digest(user, folder, link), "user": user, "folder": folder, "title": title, "url": link}
        for folder, title, link in batch
        if link is not None
    ]
    rows.sort(key=lambda row: (row["url"], row["id"]))
    if rows:
        async with engine.begin() as connection:
            await connection.execute(sa.text(f"INSERT INTO {NEW_LINK.format(':url')}"), rows)
            placed = (
                "INSERT INTO library_placements (id, user_id, folder, url, title)"
                " VALUES (:id, :user, :folder, :url, :title) ON CONFLICT DO NOTHING"
            )
            await connection.execute(sa.text(placed), rows)


def digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@app.job(
    queue="enrichment",
    unique=unique("link", states=State, scope="global", forever=True),  # a dead one, too, is not tried by others
    limits=[limit("domain", 2, key=domain_of)],
)
async def enrich(ctx: Context, link: str) -> None:
    async def note(reason: str) -> None:
        async with ctx.transaction() as tx:
            noted = (
                "INSERT INTO library_block_candidates (url, domain, reason) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
            )
            await tx.execute(noted, link, domain_of(link), reason)

    try:
        found = await look_up(link)
    except FetchRefused as error:
        raise Dead(str(error)) from error
    except Blocked as error:
        if ctx.attempt < DEAD_AFTER:
            raise
        await ctx.step("candidate", note, str(error))  # a step commits by itself: the end of a dead job rolls back
        raise Dead(str(error)) from error
    async with ctx.transaction() as tx:
        if found.leads_to:  # another domain: its own job asks its robots.txt, and counts among its two at a time
            await tx.execute(f"INSERT INTO {NEW_LINK.format('$1')}", found.leads_to)
            await enrich.aenqueue(found.leads_to)
        await tx.execute(
            "UPDATE library_links SET title = $1, description = $2, icon = $3, language = $4, type = $5, leads_to = $6"
            " WHERE url = $7",
            *found,
            link,
        )


# The routes


class Import(BaseModel):
    id: UUID
    user_id: str
    source_type: str
    status: str
    total_items: int | None
    processed_items: int
    failed_items: int
    last_error: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class Link(BaseModel):
    folder: str
    url: str
    title: str | None
    description: str | None
    icon: str | None
    language: str | None
    type: str | None
    leads_to: str | None


class LinkPage(BaseModel):
    links: list[Link]
    next: str | None


async def caller(authorization: Annotated[str, Header()] = "") -> str:
    """The user whose token it is."""
    given = authorization.removeprefix("Bearer ").encode()
    for user, token in TOKENS.items():
        if hmac.compare_digest(given, token.encode()):
            return user
    raise HTTPException(401, "give a token: Authorization: Bearer …")


User = Annotated[str, Depends(caller)]


@asynccontextmanager
async def make_tables(_: object = None) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    yield
    await engine.dispose()


api = FastAPI(title="link_library", lifespan=app.lifespan(migrate=True, also=make_tables))  # runs no handler


@api.post("/imports", status_code=202)
async def upload(request: Request, user: User) -> Import:
    file = bytearray()
    async for chunk in request.stream():
        file += chunk
        if len(file) > LARGEST:
            raise HTTPException(413, f"a file has {LARGEST:,} bytes at most")
    async with AsyncSession(engine) as session, session.begin():  # the file and its job, or neither
        job = await import_bookmarks.options(conn=session).aenqueue()
        row = {"id": str(job.id), "user_id": user, "source_type": "chrome_html", "file": bytes(file)}
        await session.execute(imports.insert().values(row))
    return await view(job, user)


@api.get("/imports/{id}")
async def show(id: UUID, user: User) -> Import:
    return await view(await own(id, user), user)


@api.post("/imports/{id}/cancel")
async def cancel(id: UUID, user: User) -> Import:
    job = await own(id, user)
    try:
        await job.acancel()
    except TransitionRefused as error:
        raise HTTPException(409, str(error)) from None
    return await view(job, user)


@api.get("/links")
async def show_links(
    user: User,
    below: Annotated[str, Query(pattern=r"^[^\x00]*$")] = "",
    count: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> LinkPage:
    """A page of the user's links by address, one row per folder. `next` of a page is `below` of the page after it."""
    place = sa.tuple_(placements.c.url, placements.c.id)
    chosen = sa.select(placements.c.id, placements.c.folder, links).join(links).where(placements.c.user_id == user)
    if below:
        chosen = chosen.where(place > sa.tuple_(*below.rpartition(" ")[::2]))
    async with engine.connect() as connection:
        rows = (await connection.execute(chosen.order_by(*place).limit(count))).all()
    following = f"{rows[-1].url} {rows[-1].id}" if len(rows) == count else None
    return LinkPage(links=[Link.model_validate(row, from_attributes=True) for row in rows], next=following)


@api.get("/block-candidates")
async def show_candidates(user: User) -> list[dict[str, Any]]:
    """Domains that refused, those with most links first."""
    refused = sa.func.count().label("links")
    chosen = sa.select(candidates.c.domain, refused, sa.func.min(candidates.c.reason).label("reason"))
    async with engine.connect() as connection:
        rows = await connection.execute(chosen.group_by(candidates.c.domain).order_by(refused.desc()).limit(1_000))
        return [dict(row._mapping) for row in rows]


async def own(id: UUID, user: str) -> JobHandle[Any]:
    """The import's job, for its owner; for all others there is none."""
    async with engine.connect() as connection:
        owner = await connection.scalar(sa.select(imports.c.user_id).filter_by(id=str(id)))
    if owner != user:
        raise HTTPException(404, "there is no such import")
    try:
        return await app.afind(id)
    except JobNotFound as error:  # its history has ended
        raise HTTPException(404, str(error)) from None


async def view(job: JobHandle[Any], user: str) -> Import:
    record = await job.arecord()
    failure = record.failure()
    return Import(
        id=record.id,
        user_id=user,
        source_type="chrome_html",
        status=import_bookmarks.label(record),
        total_items=record.total,
        processed_items=record.processed,
        failed_items=record.failed,
        last_error=None if failure is None else str(failure),
        created_at=record.created_at,
        started_at=record.started_at,
        finished_at=record.finished_at,
    )


async def prepare() -> None:
    """Make all tables before the worker starts."""
    await app.amigrate()
    async with make_tables():
        pass


if __name__ == "__main__":
    asyncio.run(prepare())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn raises the signal again: the worker must end, too
    with subprocess.Popen([sys.executable, "-m", "windlass", "worker", "library.py"]) as worker:
        try:
            uvicorn.run(api, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")))
        finally:
            worker.terminate()

"""Jobs that do, in a process of their own, what would harm a worker."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import socket
import sys
import threading
import time
from datetime import UTC, datetime

from windlass import Context, Dead, Retry, Snooze, SyncContext, Windlass
from windlass.runtime.processes.worker_link import WorkerLink

app = Windlass()
kept: list[bytearray] = []


@app.job(isolation="process")
def where() -> int:
    return os.getpid()


@app.job(isolation="process")
async def where_async(text: str) -> list[object]:
    await asyncio.sleep(0)
    return [text, os.getpid()]


@app.job(isolation="process")
def told(ctx: SyncContext) -> list[object]:
    assert ctx.job.claimed_at is not None
    return [str(ctx.job.id), ctx.fence, ctx.job.claimed_at.tzinfo is not None, ctx.deadline is None]


@app.job(isolation="process", permanent=[LookupError])
def breaks(how: str) -> None:
    match how:
        case "permanent":
            raise KeyError("nowhere")
        case "retry":
            raise Retry("later", after=7)
        case "snooze":
            raise Snooze(9)
        case "dead":
            raise Dead("no hope")
        case "exit":
            sys.exit("enough")
        case _:
            _deep_inside(how)


def _deep_inside(what: str) -> None:
    raise RuntimeError(f"{what} at {datetime.now(UTC):%Y}")


@app.job(isolation="process")
async def exits_async() -> None:
    sys.exit(4)


@app.job(isolation="process")
def segfault() -> None:
    ctypes.string_at(0)


@app.job(isolation="process")
def leaves(code: int) -> None:
    os._exit(code)


@app.job(isolation="process")
def waits(ctx: SyncContext) -> str:
    """Says where it is, then goes on until it is asked to stop."""
    ctx.progress(os.getpid())
    while not ctx.cancelled:
        time.sleep(0.005)
    return "heeded"


@app.job(isolation="process")
async def hogs(ctx: Context) -> str:
    """The same in a coroutine that never yields."""
    ctx.progress(os.getpid())
    while not ctx.cancelled:
        time.sleep(0.005)  # noqa: ASYNC251 - that is the point
    return "heeded"


@app.job(isolation="process")
def computes(ctx: SyncContext) -> None:
    """Holds the interpreter in one long computation."""
    ctx.progress(os.getpid())
    sum(range(10**12))


@app.job(isolation="process", memory="200M")
def grows(ctx: SyncContext, mebibytes: int, wait: bool) -> int:
    ctx.progress(os.getpid())
    kept.append(bytearray(b"x") * (mebibytes << 20))
    while wait:
        time.sleep(0.005)
    return os.getpid()


@app.job(isolation="process")
def chatters(ctx: SyncContext, times: int) -> None:
    ctx.log.info("begins with %d", times)
    for n in range(1, times + 1):
        ctx.progress(n, total=times)
    ctx.log.warning("100 % done")
    print("printed by a handler")


@app.job(isolation="process")
def gossips(ctx: SyncContext) -> int:
    """Leaves a thread behind that goes on talking about this job."""

    def talk() -> None:
        while True:
            ctx.log("still here")
            ctx.progress(1)
            time.sleep(0.001)

    threading.Thread(target=talk, daemon=True).start()
    return os.getpid()


@app.job(isolation="process")
def babbles(length: int, body: str) -> None:
    """Writes into the socket between its process and the worker."""
    (line,) = (thing for thing in gc.get_objects() if isinstance(thing, WorkerLink))
    line._sock.sendall(length.to_bytes(4, "big") + body.encode())
    time.sleep(60)


@app.job(isolation="process")
def hangs_up(ctx: SyncContext) -> None:
    ctx.progress(os.getpid())
    (line,) = (thing for thing in gc.get_objects() if isinstance(thing, WorkerLink))
    line._sock.shutdown(socket.SHUT_WR)
    time.sleep(60)


@app.job(isolation="process")
def forks_and_dies(ctx: SyncContext) -> None:
    """Its own child inherits the socket and keeps it open."""
    heir = os.fork()
    if heir == 0:
        time.sleep(60)
        os._exit(0)
    ctx.progress(heir)
    os._exit(5)


@app.job(isolation="process")
def writes(ctx: SyncContext, value: int, fail: bool = False) -> str:
    with ctx.transaction() as tx:
        tx.execute("INSERT INTO effects VALUES ($1)", value)
        where.enqueue()
    ctx.log.info("wrote")
    if fail:
        raise RuntimeError("after the write")
    return "written"


@app.job(isolation="process")
async def writes_async(ctx: Context, value: int) -> str:
    async with ctx.transaction() as tx:
        await tx.execute("INSERT INTO effects VALUES ($1)", value)
        await where.aenqueue()
    return "written"


@app.job(isolation="process")
def writes_and_waits(ctx: SyncContext, value: int) -> None:
    with ctx.transaction() as tx:
        tx.execute("INSERT INTO effects VALUES ($1)", value)
        ctx.progress(os.getpid())
        time.sleep(60)


@app.job
async def gentle() -> None:
    """A coroutine that does no harm, unless it is a suspect."""

"""The program that the workers of these stories run.

Every handler appends lines to a ledger, a file outside the database, so that each run of a handler is seen even when
nothing of it was committed. What is written through `ctx.transaction()` goes to a table without a unique constraint, so
that a second row would be seen as well.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import signal
import time
from pathlib import Path

from windlass import Context, Snooze, SyncContext, Windlass, failpoints, fixed, limit, phase
from windlass.errors import StoreUnavailable

LEDGER = os.environ["FAULT_LEDGER"]
GATE = Path(os.environ["FAULT_GATE"])
LOOK = 0.01  # seconds between two checks of the gate

app = Windlass()


def note(event: str, ctx: Context | SyncContext, *, durable: bool = False) -> None:
    """One write, and O_APPEND: lines of several processes never mix, and a kill loses none."""
    line = f"{event} {ctx.job.id} {ctx.attempt} {ctx.fence} {os.getpid()} {time.time():.6f}\n"
    descriptor = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@app.job(retry=fixed("0.1s"))
async def effect(ctx: Context, seconds: float = 0.0) -> None:
    """A row through `ctx.transaction()`, after some work."""
    note("begin", ctx)
    await asyncio.sleep(seconds)
    async with ctx.transaction() as tx:
        await tx.execute("insert into effects (job, fence) values ($1, $2)", str(ctx.job.id), ctx.fence)
    note("end", ctx)


@app.job(retry=fixed("0.1s"))
async def plain(ctx: Context, seconds: float = 0.0) -> int:
    """Work without a transaction: its finish goes through the completer."""
    note("begin", ctx)
    await asyncio.sleep(seconds)
    note("end", ctx)
    return ctx.fence


@app.job(retry=fixed("0.1s"), limits=[limit("key", 2)])
async def counted(ctx: Context, seconds: float = 0.0) -> None:
    """At most two at a time; its lines are on the disk before it goes on, so that a kill hides no overlap."""
    note("begin", ctx, durable=True)
    try:
        await asyncio.sleep(seconds)
    finally:
        note("end", ctx, durable=True)


@app.job(retry=fixed("0.1s"))
async def failing(ctx: Context, seconds: float = 0.0) -> None:
    """Fails every other time."""
    note("begin", ctx)
    await asyncio.sleep(seconds)
    if ctx.attempt % 2:
        raise OSError("the other side is down")


@app.job(max_attempts=2)
def healthy(ctx: SyncContext, seconds: float = 0.0) -> None:
    """On a thread."""
    note("begin", ctx)
    time.sleep(seconds)


@app.job(retry=fixed("0.1s"))
def segfault(ctx: SyncContext) -> None:
    """Takes its process along."""
    note("begin", ctx)
    ctypes.string_at(0)


@app.job(retry=fixed("0.1s"))
def leave(ctx: SyncContext) -> None:
    """Takes its process along, without a signal."""
    note("begin", ctx)
    os._exit(3)


@app.job(retry=fixed("0.1s"))
async def survivor(ctx: Context, then: str) -> None:
    """Runs until its worker is killed; then it ends once without a success."""
    note("begin", ctx)
    if ctx.fence == 1:
        await asyncio.Event().wait()
    if ctx.fence == 2 and then == "raise":
        raise OSError("the other side is down")
    if ctx.fence == 2 and then == "snooze":
        raise Snooze("0.1s")


class Silent:
    """A result that ends the process when its text is read."""

    def __str__(self) -> str:
        raise SystemExit("the words of a value ended the process")

    __repr__ = __str__


class Mute(Silent, Exception):
    """An error that does so."""


async def end(ctx: Context, how: str) -> object:
    """A row through `ctx.transaction()`, and then an end of another kind."""
    note("begin", ctx)
    async with ctx.transaction() as tx:
        await tx.execute("insert into effects (job, fence) values ($1, $2)", str(ctx.job.id), ctx.fence)
        if how == "cancel inside":
            own_task().cancel()
    match how:
        case "cancel":
            own_task().cancel()
        case "cancel and wait":
            own_task().cancel()
            await asyncio.sleep(0)
        case "generator":
            raise GeneratorExit
        case "mute":
            raise Mute
        case "mute result":
            return Silent()
    return None


def own_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None
    return task


ends = app.job(type="ends", max_attempts=1)(end)
ends_apart = app.job(type="ends_apart", max_attempts=1, isolation="process")(end)


@app.job
async def block(ctx: Context, seconds: float) -> None:
    """Holds the event loop."""
    note("begin", ctx)
    time.sleep(seconds)  # noqa: ASYNC251


@app.job
async def gated(ctx: Context) -> int:
    """Runs until the test opens the gate."""
    note("begin", ctx)
    while not GATE.exists():  # noqa: ASYNC110, ASYNC240 - the test is another process
        await asyncio.sleep(LOOK)
    note("end", ctx)
    return ctx.fence


@app.job
async def freeze(ctx: Context, point: str, transaction: bool) -> int:
    """The first attempt stops its whole process at a failpoint, until the test opens the gate and thaws it."""
    note("begin", ctx)
    if ctx.fence == 1:
        failpoints.arm(point, stand_still)
    if transaction:
        async with ctx.transaction() as tx:
            await tx.execute("insert into effects (job, fence) values ($1, $2)", str(ctx.job.id), ctx.fence)
    return ctx.fence


async def leave_a_trace(ctx: Context) -> str:
    """A phase's row through `ctx.transaction()`: its name and the one before it."""
    note("begin", ctx)
    trace = f"{ctx.previous or ''}{ctx.job.phase} "
    async with ctx.transaction() as tx:
        await tx.execute("insert into effects (job, fence) values ($1, $2)", f"{ctx.job.id} {trace}", ctx.fence)
    return trace


@app.job(retry=fixed("0.1s"))
async def first(ctx: Context) -> str:
    return await leave_a_trace(ctx)


@app.job(retry=fixed("0.1s"))
async def second(ctx: Context) -> str:
    return await leave_a_trace(ctx)


@app.job(retry=fixed("0.1s"))
async def third(ctx: Context) -> str:
    return await leave_a_trace(ctx)


app.pipeline("line", first, phase(second, processors=3), third)


@app.job(retry=fixed("0.1s"))
async def fan_out(ctx: Context, children: int, seconds: float = 0.0, hard: bool = False) -> int:
    """Joins its children; then a row through `ctx.transaction()`.

    The hard way one more child runs until the test opens the gate, and its process dies before the wait and after it.
    """
    note("begin", ctx)
    if hard and ctx.fence == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    kids = ctx.spawn_many("plain", (plain.call(seconds) for _ in range(children)))
    fences = await ctx.wait([*kids, ctx.spawn("gated", gated.call())] if hard else kids)
    note("joined", ctx)
    async with ctx.transaction() as tx:
        await tx.execute("insert into effects (job, fence) values ($1, $2)", str(ctx.job.id), ctx.fence)
    if hard and ctx.job.crashes < 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return len(fences)


@app.job
async def branch(ctx: Context, leaves: int) -> None:
    """Every other leaf runs until the test opens the gate."""
    note("begin", ctx)
    await ctx.wait([ctx.spawn(f"leaf {n}", (gated if n % 2 else plain).call()) for n in range(leaves)])
    note("joined", ctx)


@app.job
async def tree(ctx: Context, branches: int, leaves: int) -> None:
    note("begin", ctx)
    await ctx.wait(ctx.spawn_many("branch", (branch.call(leaves) for _ in range(branches))))
    note("joined", ctx)


@app.job(retry=fixed("0.1s"))
async def pay(ctx: Context, dies: bool = False) -> None:
    """A step that charges: a line that is on the disk before the row is, and the row in the step's own transaction."""

    async def charge() -> int:
        note("charge", ctx, durable=True)
        async with ctx.transaction() as tx:
            await tx.execute("insert into effects (job, fence) values ($1, $2)", str(ctx.job.id), ctx.fence)
        return ctx.fence

    note("begin", ctx)
    fence = await ctx.step("charge", charge)
    note(f"charged:{fence}", ctx)
    if dies and fence == ctx.fence:
        os.kill(os.getpid(), signal.SIGKILL)
    await ctx.step("mail", note, "mail", ctx)


@app.job(retry=fixed("0.1s"))
async def ticked(ctx: Context) -> None:
    """A job of a schedule."""
    note("begin", ctx)


if "FAULT_EVERY" in os.environ:
    app.schedule("ticks", ticked.call(), every=os.environ["FAULT_EVERY"], catch_up="all")


def lose_answer() -> None:
    """What the program sees of a connection that broke after the commit."""
    if random.random() < 0.5:
        raise StoreUnavailable("the answer was lost")


if "FAULT_LOSE" in os.environ:
    failpoints.arm(os.environ["FAULT_LOSE"], lose_answer)


def stand_still() -> None:
    failpoints.disarm()
    while not GATE.exists():
        os.kill(os.getpid(), signal.SIGSTOP)

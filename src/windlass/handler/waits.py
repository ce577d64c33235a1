"""How a handler waits: its run ends, the job is `waiting` and holds no processor, and a wake-up starts a new run.

`ctx.wait`, `ctx.sleep` and `ctx.wait_signal` return at once when the wait is over already. Otherwise they raise
`Suspended`, which no `except Exception` catches, with everything that has to be written for the wait.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import msgspec

from windlass.clock import spell
from windlass.errors import FlowError, ResultTimeout, SignalTimeout
from windlass.handler.children import Child, Children, count_needed, refuse_hopeless
from windlass.handler.memory import APART, RunMemory
from windlass.model.flow import Flow, Link, Memory
from windlass.model.job import Edge, Policy, Wait
from windlass.model.state import State

WOKEN_EARLY = 0.25
"""Seconds: a process knows the database's time only as exactly as its claims are fast. A job that is woken this early
waits in its processor for the rest, and is not suspended once more."""


class Suspended(BaseException):
    """This run is over; the job waits. A BaseException, so that a handler's `except Exception` does not catch it."""

    def __init__(self, flow: Flow) -> None:
        super().__init__("this run ends here: the job waits, and its handler starts from the top when it is woken")
        self.flow = flow


class Waits:
    """The waits of one run."""

    def __init__(self, memory: RunMemory, children: Children) -> None:
        self._memory = memory
        self._children = children
        self._suspended = False

    async def sleep(self, name: str, delay: float) -> None:
        """Wait until `delay` seconds after the first run that waited here."""
        memory = self._memory
        key = memory.take(name, "sleep")
        until, memories = await memory.deadline(key, delay)
        left = memory.seconds_until(until)
        if left and (memories or left > WOKEN_EARLY):
            await self._suspend(Wait(delay=left), memories)
        if left:
            await asyncio.sleep(left)

    async def signal(self, name: str, timeout: float | None) -> Any:
        """The payload of a signal, also of one that was sent before."""
        memory = self._memory
        key = memory.take(name, "signal")
        if timeout is not None and await memory.has_expired(key):
            raise _no_signal(name, timeout)
        payload = await memory.read_signal(name)
        if payload is not None:
            return msgspec.json.decode(payload)
        if timeout is None:
            await self._suspend(Wait(signal=name))
        until, memories = await memory.deadline(key, timeout)
        left = memory.seconds_until(until)
        if left:
            await self._suspend(Wait(signal=name, delay=left), memories)
        await memory.expire(key)
        raise _no_signal(name, timeout)

    async def wait(self, jobs: Iterable[object], need: object, timeout: float | None) -> list[Any]:
        """The results of the jobs that succeeded, once as many as needed have.

        With the need "ended": the jobs themselves, in a run that reads all of them as ended. A dead or cancelled job
        that is replayed or resumed before that run has not ended, and is waited for again.
        """
        memory, children = self._memory, self._children
        awaited = children.check_awaited(jobs)
        if not awaited and need in ("all", "ended"):
            return []  # all of no jobs
        count = count_needed(need, len(awaited))
        to_end = need == "ended"
        key = _join_key(memory, awaited, "ended" if to_end else count)
        links = await children.read_states(awaited)
        if timeout is not None and await memory.has_expired(key):
            raise _too_late(awaited, count, timeout, to_end=to_end)
        arrived = [child for child in awaited if (child.ended if to_end else child.status is State.SUCCEEDED)]
        if len(arrived) >= count:
            return arrived if to_end else [child.result for child in arrived]
        if not to_end:
            refuse_hopeless(awaited, count)
        left: float | None = None
        memories: tuple[Memory, ...] = ()
        if timeout is not None:
            until, memories = await memory.deadline(key, timeout)
            left = memory.seconds_until(until)
            if not left:
                await memory.expire(key)
                raise _too_late(awaited, count, timeout, to_end=to_end)
        wait = await self._join(awaited, None if to_end else count - len(arrived), left)
        return await self._suspend(wait, memories, links)

    async def _join(self, awaited: Sequence[Child[Any]], missing: int | None, delay: float | None) -> Wait:
        """The wait for the jobs that have not succeeded, dead ones included: they may be replayed.

        `missing` is how many more have to succeed; None: all have to end, and an edge counts any end as a success.
        """
        _, same = await self._children.new_spawns()
        rest = [child for child in awaited if child.status is not State.SUCCEEDED and not child.gone]
        targets = dict.fromkeys(self._children.id_to_await(child, same) for child in rest)
        if missing is None:
            edges = tuple(Edge(target, Policy.CONTINUE) for target in targets)
            return Wait(edges=edges, need=len(edges), delay=delay)
        # Several names may be one job with a unique key, which is one success: a job woken early waits again.
        need = max(1, missing - (len(rest) - len(targets)))
        return Wait(edges=tuple(Edge(target) for target in targets), need=need, delay=delay)

    async def _suspend(self, wait: Wait, memories: tuple[Memory, ...] = (), links: tuple[Link, ...] = ()) -> NoReturn:
        """End this run with everything that has to be written."""
        spawns, _ = await self._children.new_spawns()
        self._suspended = True
        raise Suspended(Flow(spawns=spawns, links=links, memories=memories, wait=wait))

    async def flow(self) -> Flow | None:
        """What the finish of a successful run writes: the spawns that were not waited for."""
        if self._suspended:
            raise FlowError(
                "the handler caught what ctx.wait(), ctx.sleep() or ctx.wait_signal() raises to free its processor; "
                "catch Exception and not BaseException, and don't collect it: gather(…, return_exceptions=True)"
            )
        spawns, _ = await self._children.new_spawns()
        return Flow(spawns=spawns) if spawns else None


def _join_key(memory: RunMemory, awaited: Sequence[Child[Any]], need: int | str) -> str:
    """The key of a wait: the same jobs in any order, with the same need, are the same wait."""
    names = "\n".join(sorted(child.name for child in awaited))
    return memory.key_of(f"{APART}wait {hashlib.sha256(f'{need} {names}'.encode()).hexdigest()[:32]}")


def _no_signal(name: str, timeout: float) -> SignalTimeout:
    return SignalTimeout(
        f"signal {name!r} was not sent within {spell(timeout)}; send it in time, job.signal({name!r}), or wait longer"
    )


def _too_late(awaited: Sequence[Child[Any]], count: int, timeout: float, *, to_end: bool) -> ResultTimeout:
    if to_end:
        ended = sum(child.ended for child in awaited)
        return ResultTimeout(f"{ended} of {count} awaited jobs ended within {spell(timeout)}; the others go on")
    there = sum(child.status is State.SUCCEEDED for child in awaited)
    return ResultTimeout(
        f"{there} of {len(awaited)} awaited jobs succeeded within {spell(timeout)}, and {count} were needed; they go on"
    )

"""`ctx.acquire()` and `ctx.hold_back()`: calling out at a rate that holds for every worker together.

The bucket is a row of the store. A token for a time near by is waited for here, in the processor; one that is further
away is not worth a processor, and the job is snoozed until then with no attempt burned.
"""

from __future__ import annotations

from windlass.clock import Clock, spell
from windlass.declare.registry import Registry
from windlass.errors import FlowError
from windlass.handler.memory import RunMemory
from windlass.handler.steps import step_of
from windlass.model.outcome import Snooze
from windlass.policy.limit import LONGEST_HOLD, OWN, Value, bucket_of

LONGEST_WAIT = 5.0  # seconds in a processor


class Tokens:
    """The rates under which one run calls out."""

    def __init__(self, memory: RunMemory, clock: Clock, registry: Registry | None) -> None:
        self._memory = memory
        self._clock = clock
        self._registry = registry

    async def acquire(self, name: str, key: Value | None) -> None:
        """Return when this run may call once; raises Snooze when that is too far away."""
        bucket = self._bucket("acquire", name, key)
        end = self._clock.monotonic() + LONGEST_WAIT
        while not await self._take(bucket, most=max(0.0, end - self._clock.monotonic())):
            pass

    async def _take(self, bucket: str, *, most: float) -> bool:
        """Wait for one token; whether it still counts then."""
        memory, store = self._memory, self._memory.store
        grant = await memory.retry_while_leased(lambda: store.acquire(bucket, most=most))
        if not grant.granted:
            raise Snooze(grant.wait)
        if grant.wait <= 0:
            return True
        await self._clock.sleep(grant.wait)
        # The race: somebody makes everybody hold back while this sleeps, and its token is for a time at which nobody
        # may call. It is lost, and the next one comes after the hold.
        return await memory.retry_while_leased(lambda: store.held_for(bucket)) <= 0

    async def hold_back(self, name: str, seconds: float, key: Value | None) -> None:
        """Nobody calls for so long."""
        if seconds > LONGEST_HOLD:
            raise FlowError(
                f"ctx.hold_back({name!r}): {spell(seconds)} is longer than {spell(LONGEST_HOLD)}, the longest hold; "
                "close a gate: await app.apause(…)"
            )
        bucket = self._bucket("hold_back", name, key)
        await self._memory.retry_while_leased(lambda: self._memory.store.hold_back(bucket, seconds))

    def _bucket(self, word: str, name: str, key: Value | None) -> str:
        job, known = self._memory.job, self._registry
        rule = None if known is None else known.rule(name)
        if word == "acquire" and rule is not None and rule.period is None:
            raise FlowError(f"ctx.acquire({name!r}): that is a limit, which has no tokens; declare a rate: app.rate(…)")
        if key is None and known is not None and known.is_keyed(name):
            own = f"ctx.job.{name}" if name in OWN else "…"
            raise FlowError(f"ctx.{word}({name!r}): it has a key per value; say which: key={own}")
        self._memory.transaction.check()
        self._refuse_in_a_transaction(word)
        scope = "global" if known is None else known.scope_of(name, job.type)
        return bucket_of(name, key, scope=scope, tenant=job.tenant)

    def _refuse_in_a_transaction(self, word: str) -> None:
        """The wait would hold its locks; on SQLite, where one writes at a time, it would wait for itself."""
        step = step_of(self._memory)
        inside = self._memory.transaction if step is None else step.transaction
        if self._memory.transaction.transaction is not None or inside.transaction is not None:
            raise FlowError(
                f"ctx.{word}() comes after ctx.transaction() was opened, which keeps its locks until the finish; put "
                f"the transaction last, and ctx.{word}() before it"
            )

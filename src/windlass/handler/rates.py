"""`ctx.acquire()` and `ctx.hold_back()`: calls at a rate that all workers share.

The bucket is a row of the store. For a token in the near future the handler waits in its processor. A later token is
not worth a processor: the job is snoozed until then, and no attempt is used up.
"""

from __future__ import annotations

import math

from windlass.clock import Clock, spell
from windlass.declare.registry import Registry
from windlass.errors import FlowError
from windlass.handler.memory import RunMemory
from windlass.handler.steps import step_of
from windlass.model.outcome import Snooze
from windlass.policy.limit import JOB_FIELDS, LONGEST_HOLD, Value, bucket_of

LONGEST_WAIT = 5.0  # seconds in a processor
LATE = 0.1  # seconds after which a token is not used: calls that are late together are above the rate
HELD = math.inf  # a token for a time at which the rate is held back
TOKENS = 3  # the third one is used however late it is: with a slow database all calls are late, and so not together


class Tokens:
    """The tokens that one run takes from rates."""

    def __init__(self, memory: RunMemory, clock: Clock, registry: Registry | None) -> None:
        self._memory = memory
        self._clock = clock
        self._registry = registry

    async def acquire(self, name: str, key: Value | None) -> None:
        """Return when this run may call once; raises Snooze when that is too far away."""
        bucket = self._bucket("acquire", name, key)
        end = self._clock.monotonic() + LONGEST_WAIT
        left = TOKENS
        while (late := await self._take(bucket, most=max(0.0, end - self._clock.monotonic()))) > LATE:
            left -= late < HELD
            if not left:
                return

    async def _take(self, bucket: str, *, most: float) -> float:
        """Wait for one token; the answer is for how many seconds it has been valid then."""
        memory, store = self._memory, self._memory.store
        grant = await memory.retry_while_leased(lambda: store.acquire(bucket, most=most))
        if not grant.granted:
            raise Snooze(grant.wait)
        valid_from = self._clock.monotonic() + grant.wait - grant.age
        if grant.wait > 0:
            await self._clock.sleep(max(0.0, grant.wait - grant.age))
            # The race: another job holds the rate back while this one sleeps, and the token is for a time at which no
            # job may call. The token is lost, and the next one is for a time after the hold.
            if await memory.retry_while_leased(lambda: store.held_for(bucket)) > 0:
                return HELD
        return self._clock.monotonic() - valid_from

    async def hold_back(self, name: str, seconds: float, key: Value | None) -> None:
        """Let no worker call at this rate for this long."""
        if seconds > LONGEST_HOLD:
            raise FlowError(
                f"ctx.hold_back({name!r}): {spell(seconds)} is longer than {spell(LONGEST_HOLD)}, the longest hold; "
                "pause it: await app.apause(…)"
            )
        bucket = self._bucket("hold_back", name, key)
        await self._memory.retry_while_leased(lambda: self._memory.store.hold_back(bucket, seconds))

    def _bucket(self, method: str, name: str, key: Value | None) -> str:
        job, known = self._memory.job, self._registry
        rule = None if known is None else known.rule(name)
        if method == "acquire" and rule is not None and rule.period is None:
            raise FlowError(f"ctx.acquire({name!r}): that is a limit, which has no tokens; declare a rate: app.rate(…)")
        if key is None and known is not None and known.is_keyed(name):
            own = f"ctx.job.{name}" if name in JOB_FIELDS else "…"
            raise FlowError(f"ctx.{method}({name!r}): it has a key per value; say which: key={own}")
        self._memory.transaction.check()
        self._refuse_in_a_transaction(method)
        scope = "global" if known is None else known.scope_of(name, job.type)
        return bucket_of(name, key, scope=scope, tenant=job.tenant)

    def _refuse_in_a_transaction(self, method: str) -> None:
        """The wait would keep the transaction's locks; on SQLite, which has one writer, it would wait for itself."""
        step = step_of(self._memory)
        inside = self._memory.transaction if step is None else step.transaction
        if self._memory.transaction.transaction is not None or inside.transaction is not None:
            raise FlowError(
                f"ctx.{method}() is called after ctx.transaction() was opened, which keeps its locks until the finish; "
                f"put the transaction last, and ctx.{method}() before it"
            )

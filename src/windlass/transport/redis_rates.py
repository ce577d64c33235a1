"""Buckets of rates in Redis, each call one atomic script. Time is the server's, in microseconds.

A bucket has two times. `next` moves on by a period with every token that is used (GCRA, as in the store): no token is
given while it is more than `burst` − 1 periods ahead. `plan` moves on with every place that is promised: a job that
finds the bucket empty gets a time of its own, its turn, and later jobs get later ones. So no job waits for ever. A turn
is no token: a job that comes late for its turn still needs `next`, and a hundred late jobs do not start together.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from windlass.broker_address import BrokerAddress
from windlass.model.admission import APART, Grant, LimitRow, Rule
from windlass.transport.redis_link import RedisLink

RULES = "windlass:rates"  # a hash: name → period in microseconds and burst, as the last program declared it
BUCKET = "windlass:rate:"  # a hash per key: next, plan, held
HOLDS = "windlass:rate-holds"  # a sorted set: key → until when it is held
TURN = "windlass:turn:"  # by job: its time, kept for an hour longer
MICRO = 1_000_000
FARTHEST = 86_400 * MICRO  # a turn that would be later is not promised: the job asks again after half of that
HELD_AGAIN = 60 * MICRO  # a job whose rate is held asks again after that at the latest: an operator may end the hold

COMMON = """
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local function text(number) return string.format('%.0f', number) end
local function rule(name, given)
  local found = redis.call('HGET', 'windlass:rates', name)
  if not found and (given or '') ~= '' then  -- FLUSHALL
    redis.call('HSET', 'windlass:rates', name, given)
    found = given
  end
  if not found then return nil end
  local period, burst = string.match(found, '(%S+) (%S+)')
  return tonumber(period), tonumber(burst)
end
local function load(key, name, given)
  local period, burst = rule(name, given)
  if not period then return nil end
  local values = redis.call('HMGET', 'windlass:rate:' .. key, 'next', 'plan', 'held')
  return {key = key, period = period, ahead = (burst - 1) * period, burst = burst, late = 0,
          next = tonumber(values[1] or '0'), plan = tonumber(values[2] or '0'), held = tonumber(values[3] or '0')}
end
local function save(bucket)
  local key = 'windlass:rate:' .. bucket.key
  redis.call('HSET', key, 'next', text(bucket.next), 'plan', text(bucket.plan), 'held', text(bucket.held))
  -- A bucket whose times have passed is full, as one that was never used.
  local last = math.max(bucket.next, bucket.plan, bucket.held, now)
  redis.call('PEXPIREAT', key, text(math.ceil(last / 1000) + 60000))
end
local function use(bucket, at)
  bucket.next = math.max(bucket.next, at) + bucket.period
  bucket.plan = math.max(bucket.plan, bucket.next)
end
"""

# [[job, [[key, name, rule], …]], …] → for each job the microseconds until it may ask again; 0: it has its tokens.
TAKE = (
    COMMON
    + """
local buckets, waits = {}, {}
for place, asked in ipairs(cjson.decode(ARGV[1])) do
  local own, turn_key = {}, 'windlass:turn:' .. asked[1]
  for _, need in ipairs(asked[2]) do
    buckets[need[1]] = buckets[need[1]] or load(need[1], need[2], need[3])
    own[#own + 1] = buckets[need[1]]
  end
  local turn, held = tonumber(redis.call('GET', turn_key) or nil), 0
  local at = turn or now
  for _, bucket in ipairs(own) do
    if not turn then at = math.max(at, bucket.plan - bucket.ahead) end
    held = math.max(held, bucket.held)
  end
  local promised = turn or at - now <= tonumber(ARGV[2])
  if promised and not turn then
    for _, bucket in ipairs(own) do bucket.plan = math.max(bucket.plan, at) + bucket.period end
  end
  local free = math.max(at, held)
  for _, bucket in ipairs(own) do
    free = math.max(free, bucket.next - bucket.ahead + bucket.late * bucket.period)
  end
  if free <= now then
    for _, bucket in ipairs(own) do use(bucket, now) end
    redis.call('DEL', turn_key)
    waits[place] = 0
  elseif not promised then
    waits[place] = math.floor(tonumber(ARGV[2]) / 2)
  else
    -- Of jobs that come late for their turns, each next one asks again a period later.
    if at <= now then for _, bucket in ipairs(own) do bucket.late = bucket.late + 1 end end
    redis.call('SET', turn_key, text(at), 'PX', text(math.ceil((free - now) / 1000) + 3600000))
    waits[place] = free - now
    if held > now then waits[place] = math.min(free - now, tonumber(ARGV[3])) end
    waits[place] = math.ceil(waits[place])
  end
end
for _, bucket in pairs(buckets) do save(bucket) end
return waits
"""
)

# key, name, the longest wait, this program's rule → {granted, microseconds}; nothing where the rate is unknown.
ACQUIRE = (
    COMMON
    + """
local bucket = load(ARGV[1], ARGV[2], ARGV[4])
if not bucket then return {} end
local at = math.max(now, bucket.next - bucket.ahead, bucket.held)
if at - now > tonumber(ARGV[3]) then return {0, math.ceil(at - now)} end
use(bucket, at)
save(bucket)
return {1, math.ceil(at - now)}
"""
)

# key, name, microseconds, this program's rule → what was left of an earlier hold; nothing where the rate is unknown.
HOLD = (
    COMMON
    + """
local bucket = load(ARGV[1], ARGV[2], ARGV[4])
if not bucket then return {} end
local before = math.max(0, bucket.held - now)
bucket.held = math.max(bucket.held, now + tonumber(ARGV[3]))
bucket.next = math.max(bucket.next, bucket.held + bucket.ahead)  -- afterwards one token, not a burst
bucket.plan = math.max(bucket.plan, bucket.next)
save(bucket)
redis.call('ZADD', 'windlass:rate-holds', text(bucket.held), ARGV[1])
redis.call('ZREMRANGEBYSCORE', 'windlass:rate-holds', '-inf', text(now))
return {math.ceil(before)}
"""
)

# key, name → whether it was held. The bucket counts as empty then: when the last token was used is not known any more.
# In the last five seconds of a hold handlers sleep with tokens for the time after it: those times stay taken.
RELEASE = (
    COMMON
    + """
local bucket = load(ARGV[1], ARGV[2])
if not bucket or bucket.held <= now then return 0 end
if bucket.held > now + 5000000 then
  bucket.next = math.min(bucket.next, now + bucket.burst * bucket.period)
  bucket.plan = bucket.next
end
bucket.held = 0
save(bucket)
redis.call('ZREM', 'windlass:rate-holds', ARGV[1])
return 1
"""
)

# [[key, name], …] → {period, burst, next − now, plan − now, held − now} of each; nothing where the rate is unknown.
SHOW = (
    COMMON
    + """
local shown = {}
for place, asked in ipairs(cjson.decode(ARGV[1])) do
  local bucket = load(asked[1], asked[2])
  shown[place] = bucket and {math.ceil(bucket.period), bucket.burst, math.ceil(bucket.next - now),
                             math.ceil(bucket.plan - now), math.ceil(bucket.held - now)} or {}
end
return shown
"""
)


class RedisRates:
    """The buckets. Every call raises BrokerUnavailable or BrokerRefused where Redis cannot be used."""

    def __init__(self, address: BrokerAddress) -> None:
        self._link = RedisLink(address)
        self.shown = address.shown
        self._rules: dict[str, str] = {}  # of this program, as RULES has them
        self._is_declared = True

    async def close(self) -> None:
        await self._link.close()

    async def declare(self, rules: Sequence[Rule]) -> None:
        """Write these rates; what could not be written is written before the next tokens are taken."""
        self._rules = {rule.name: f"{(rule.period or 0.0) * MICRO:.3f} {rule.burst}" for rule in rules}
        self._is_declared = not rules
        if rules:
            await self._declare()

    async def _declare(self) -> None:
        async def write(client: Any) -> None:
            await client.hset(RULES, mapping=dict(self._rules))

        await self._link.run(write)
        self._is_declared = True

    def _rule(self, key: str) -> str:
        return self._rules.get(name_of(key), "")

    def own_keys(self, keys: Collection[str] | None) -> list[str]:
        """Those of a job's keys that belong to a rate of this program."""
        return [key for key in keys or () if name_of(key) in self._rules]

    async def take(self, jobs: Mapping[UUID, Sequence[str]]) -> dict[UUID, float]:
        """Take one token of every key of each job, all or none; the seconds until each may ask again, 0 with tokens."""
        if not self._is_declared:
            await self._declare()
        asked = [
            [str(job), [[key, name_of(key), self._rules[name_of(key)]] for key in keys]] for job, keys in jobs.items()
        ]
        waits = await self._run(TAKE, json.dumps(asked), FARTHEST, HELD_AGAIN)
        return {job: int(wait) / MICRO for job, wait in zip(jobs, waits, strict=True)}

    async def acquire(self, bucket: str, *, most: float) -> Grant | None:
        """As in the store; None where no program declared the rate here."""
        answer = await self._run(ACQUIRE, bucket, name_of(bucket), int(most * MICRO), self._rule(bucket))
        return Grant(granted=bool(answer[0]), wait=int(answer[1]) / MICRO) if answer else None

    async def hold_back(self, bucket: str, seconds: float) -> float | None:
        """Hold a bucket; what was left of an earlier hold, or None where no program declared the rate here."""
        answer = await self._run(HOLD, bucket, name_of(bucket), int(seconds * MICRO), self._rule(bucket))
        return int(answer[0]) / MICRO if answer else None

    async def end_hold(self, bucket: str) -> bool:
        return bool(await self._run(RELEASE, bucket, name_of(bucket)))

    async def held_keys(self) -> list[str]:
        """The keys that are held now. A worker asks every second, and so declares again what FLUSHALL removed: the
        child processes of a program know its rates from Redis alone."""

        async def read(client: Any) -> list[bytes]:
            if self._rules:
                known = await client.hmget(RULES, list(self._rules))
                for (name, rule), found in zip(self._rules.items(), known, strict=True):
                    if found is None:
                        await client.hsetnx(RULES, name, rule)
            seconds, micro = await client.time()
            return list(await client.zrangebyscore(HOLDS, f"({seconds * MICRO + micro}", "+inf"))

        return [key.decode() for key in await self._link.run(read)]

    async def rows(self, names: Sequence[str]) -> list[LimitRow]:
        """The buckets in use: all, or those of these names or keys."""
        keys = sorted(set(await self._keys(names)))
        shown = await self._run(SHOW, json.dumps([[key, name_of(key)] for key in keys])) if keys else []
        return [_row(key, *map(int, answer)) for key, answer in zip(keys, shown, strict=True) if answer]

    async def _keys(self, names: Sequence[str]) -> list[str]:
        async def scan(client: Any) -> list[str]:
            found = [key async for key in client.scan_iter(match=f"{BUCKET}*", count=1000)]
            return [key.decode().removeprefix(BUCKET) for key in found]

        if names and all(APART in name for name in names):  # keys of jobs: no walk over what the server holds
            return list(names)
        wanted = set(names)
        return [key for key in await self._link.run(scan) if not wanted or key in wanted or name_of(key) in wanted]

    async def _run(self, script: str, *arguments: object) -> Any:
        async def run(client: Any) -> Any:
            return await client.register_script(script)(args=arguments)

        return await self._link.run(run)


def name_of(key: str) -> str:
    """The rate that a key belongs to."""
    return key.partition(APART)[0]


def _row(key: str, period: int, burst: int, next_in: int, plan_in: int, held: int) -> LimitRow:
    ahead = max(0, next_in)
    return LimitRow(
        key=key,
        name=name_of(key),
        most=None,
        used=min(burst, -(-ahead // period)),
        period=period / MICRO,
        burst=burst,
        free_in=max(0, next_in - (burst - 1) * period) / MICRO,
        waiting=max(0, (plan_in - ahead) // period),  # turns that are promised and not used yet
        held=max(0, held) / MICRO,
    )

"""When a failed job is tried again: three policies, one per seed, each with jitter."""

from __future__ import annotations

import random
from typing import Protocol

import msgspec

from windlass.clock import Duration, seconds
from windlass.errors import ConfigError
from windlass.words import explain_arguments

LONGEST_DELAY = 7 * 86_400.0  # seconds; bounds the doubling


class RetryPolicy(Protocol):
    """What `retry=` takes: how long a failed job waits for its next attempt."""

    def delay(self, attempt: int) -> float:
        """Seconds to wait after the attempt of this number failed; the first is 1: `policy.delay(1)`."""
        ...


class Exponential(msgspec.Struct, frozen=True):
    """base, base·factor, base·factor², … (seed 003: 10 s, 20 s, 40 s, 80 s)."""

    base: float
    factor: float
    jitter: float
    most: float

    def delay(self, attempt: int) -> float:
        try:
            plain = self.base * self.factor ** (attempt - 1)
        except OverflowError:
            plain = self.most
        return spread(min(plain, self.most), self.jitter)


class Delays(msgspec.Struct, frozen=True):
    """A list of delays. The last one repeats (seed 002: 5 s, then 30 s)."""

    steps: tuple[float, ...]
    jitter: float

    def delay(self, attempt: int) -> float:
        return spread(self.steps[min(attempt, len(self.steps)) - 1], self.jitter)


@explain_arguments("exponential")
def exponential(
    base: Duration = "10s", *, factor: float = 2, jitter: float = 0.0, most: Duration = "7d"
) -> RetryPolicy:
    """Wait `base`, then `factor` times longer after each failure, at most `most`: `retry=exponential("10s")`.

    `jitter=0.1` spreads each delay by up to a tenth, so that jobs that failed together are not tried again together.
    """
    if not factor >= 1:
        raise ConfigError(f"exponential(factor={factor!r}): the factor must be at least 1")
    return Exponential(
        seconds(base, what="exponential(base)"), factor, check_jitter(jitter), seconds(most, what="most")
    )


@explain_arguments("delays")
def delays(first: Duration, *others: Duration, jitter: float = 0.0) -> RetryPolicy:
    """Wait these times, one after the other: `retry=delays("5s", "30s")`. The last one repeats."""
    return Delays(tuple(seconds(step, what="delays(…)") for step in (first, *others)), check_jitter(jitter))


@explain_arguments("fixed")
def fixed(delay: Duration, *, jitter: float = 0.0) -> RetryPolicy:
    """Wait the same time after every failure: `retry=fixed("1m")`."""
    return delays(delay, jitter=jitter)


def check_jitter(jitter: float) -> float:
    if not 0 <= jitter <= 1:
        raise ConfigError(f"jitter={jitter!r}: must be between 0 and 1, for example 0.1 for ±10 %")
    return jitter


def spread(delay: float, jitter: float) -> float:
    """`delay` ± `jitter` of itself, so that a thousand jobs that failed together are not tried again together."""
    return delay * (1 + jitter * random.uniform(-1, 1)) if jitter else delay

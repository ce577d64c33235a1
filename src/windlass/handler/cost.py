"""The cost of an attempt, as its handler reports it: fractions of a cent add up exactly, whole cents are written."""

from __future__ import annotations

import threading
from decimal import ROUND_CEILING, Context, Decimal
from math import ceil

MOST = 10**12  # cents of one attempt: more is a mistake
EXACT = Context(prec=60, rounding=ROUND_CEILING)  # a sum that cannot be kept to the last digit is rounded up


class Spending:
    """The cost of one attempt. Threads of a handler may add to it at the same time."""

    def __init__(self) -> None:
        self._sum = Decimal(0)
        self._lock = threading.Lock()

    @property
    def cents(self) -> int:
        """Whole cents, rounded up: any cost is at least 1 cent."""
        return ceil(self._sum)

    def add(self, cents: object) -> None:
        amount = _amount(cents)
        with self._lock:
            together = EXACT.add(self._sum, amount)
            if together > MOST:
                raise ValueError(f"ctx.cost({cents!r}): one attempt would cost more than {MOST:,} cents")
            self._sum = together

    def reach(self, cents: int) -> None:
        """Raise the sum to what a child process reported."""
        with self._lock:
            self._sum = max(self._sum, Decimal(cents))


def _amount(cents: object) -> Decimal:
    if isinstance(cents, bool) or not isinstance(cents, (int, float, Decimal)):
        raise ValueError(f"ctx.cost({cents!r}): cents are a number (int, float or Decimal), not {type(cents).__name__}")
    # By its shortest digits: ten times 0.1 cents are 1 cent. The exact value of the float would round up to 2.
    amount = Decimal(repr(float(cents))) if isinstance(cents, float) else Decimal(cents)
    if not amount.is_finite() or amount < 0:
        raise ValueError(f"ctx.cost({cents!r}): cents are a finite number from 0 on")
    return amount

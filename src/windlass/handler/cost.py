"""What an attempt cost, as its handler says: any fraction of a cent, added up exactly and written as whole cents."""

from __future__ import annotations

import threading
from decimal import ROUND_CEILING, Context, Decimal
from math import ceil

MOST = 10**12  # cents of one attempt: what is above is a slip
EXACT = Context(prec=60, rounding=ROUND_CEILING)  # a sum that cannot be kept to the last digit is rounded up


class Spending:
    """The sum of one attempt. A handler's threads may add to it at the same time."""

    def __init__(self) -> None:
        self._sum = Decimal(0)
        self._lock = threading.Lock()

    @property
    def cents(self) -> int:
        """Whole cents, rounded up: nothing that costs something is free."""
        return ceil(self._sum)

    def add(self, cents: object) -> None:
        amount = _amount(cents)
        with self._lock:
            together = EXACT.add(self._sum, amount)
            if together > MOST:
                raise ValueError(f"ctx.cost({cents!r}): one attempt would cost more than {MOST:,} cents")
            self._sum = together

    def reach(self, cents: int) -> None:
        """A child process told its sum so far."""
        with self._lock:
            self._sum = max(self._sum, Decimal(cents))


def _amount(cents: object) -> Decimal:
    if isinstance(cents, bool) or not isinstance(cents, (int, float, Decimal)):
        raise ValueError(f"ctx.cost({cents!r}): cents are a number (int, float or Decimal), not {type(cents).__name__}")
    # By its digits: ten times 0.1 cents are 1 cent, and not the 2 that the float's tail would make of it.
    amount = Decimal(repr(float(cents))) if isinstance(cents, float) else Decimal(cents)
    if not amount.is_finite() or amount < 0:
        raise ValueError(f"ctx.cost({cents!r}): cents are a finite number from 0 on")
    return amount

"""What the testing helpers raise. Where a test's expectation failed, it is an AssertionError too.

HarnessError
├── NothingDue      run_one() found nothing to run
├── EndlessDrain    drain() reached its limit, and more is due
├── HandlerStuck    a handler does not end
└── AttemptFailed   an attempt failed and left no exception: its input does not fit, its time limit passed
"""

from __future__ import annotations

from windlass.errors import WindlassError


class HarnessError(WindlassError):
    """The harness cannot do what the test asks."""


class NothingDue(HarnessError, AssertionError):
    """There is nothing to run now; the message names what waits, and for how long."""


class EndlessDrain(HarnessError, AssertionError):
    """More and more jobs become due."""


class HandlerStuck(HarnessError, AssertionError):
    """A handler has not ended within the harness's patience."""


class AttemptFailed(HarnessError):
    """An attempt failed outside its handler."""

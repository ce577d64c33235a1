"""Helpers for the tests of programs that use Windlass: `harness(app)`, and a pytest plugin with a fixture `windlass`.

Nothing heavy is imported before it is used: pytest loads the plugin, and with it this package, in every run.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windlass.app import Windlass
    from windlass.clock import Duration
    from windlass.testing.clock import ManualClock
    from windlass.testing.errors import AttemptFailed, EndlessDrain, HandlerStuck, HarnessError, NothingDue
    from windlass.testing.harnesses import Harness
    from windlass.testing.results import AttemptResult

__all__ = [
    "AttemptFailed",
    "AttemptResult",
    "EndlessDrain",
    "HandlerStuck",
    "Harness",
    "HarnessError",
    "ManualClock",
    "NothingDue",
    "harness",
]


def harness(
    app: Windlass,
    url: str | None = None,
    *,
    inline: bool = False,
    raise_errors: bool = False,
    start: datetime | None = None,
    patience: Duration | None = None,
) -> Harness:
    """The app on a throw-away database for the time of a `with` or `async with` block.

    `url` leads to a PostgreSQL server on which a database may be made; without it, a temporary SQLite file is used.
    `inline` runs every job where it is enqueued. `raise_errors` is the default of `drain` and `run_one`. `start` is
    the time of the clock at first, else the present. `patience` is how much real time one attempt may take.
    """
    from windlass.testing.harnesses import PATIENCE, Harness

    return Harness(
        app,
        url,
        inline=inline,
        raise_errors=raise_errors,
        start=start,
        patience=PATIENCE if patience is None else patience,
    )


MODULES = {
    "AttemptFailed": "errors",
    "EndlessDrain": "errors",
    "HandlerStuck": "errors",
    "Harness": "harnesses",
    "HarnessError": "errors",
    "ManualClock": "clock",
    "NothingDue": "errors",
    "AttemptResult": "results",
}


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{MODULES[name]}"), name)

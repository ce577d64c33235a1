"""Named places in the engine where a test can stop, raise, wait, or kill the process.

Free when off: `if failpoints.armed:` is one test of an empty dict. A test arms them in its own process, or for a worker
process by `WINDLASS_FAILPOINTS="claim.committed=kill@0.02;finish.before=sleep(5)"`, with `@p` for a probability.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable

from windlass.errors import ConfigError

NAMES = frozenset(
    {
        "enqueue.before",
        "enqueue.committed",
        "claim.before",
        "claim.committed",
        "process.before",
        "process.after",
        "transaction.before_commit",
        "transaction.committed",
        "step.before_commit",
        "step.committed",
        "finish.before",
        "finish.committed",
        "beat.before",
        "sweep.buried",
        "sweep.before_rescue",
        "lead.taken",
        "tick.moved",
        "relay.published",
    }
)

armed: dict[str, Callable[[], None]] = {}


def hit(name: str) -> None:
    """Run the action that was armed for this place, if there is one."""
    action = armed.get(name)
    if action is not None:
        action()


def arm(name: str, action: Callable[[], None]) -> None:
    """Run `action` whenever the engine passes `name`."""
    if name not in NAMES:
        raise ConfigError(f"unknown failpoint {name!r}; there are: {', '.join(sorted(NAMES))}")
    armed[name] = action


def disarm() -> None:
    armed.clear()


def arm_from(text: str) -> None:
    """Arm the failpoints in the text of `WINDLASS_FAILPOINTS`."""
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        name, _, spec = part.partition("=")
        what, _, chance = spec.partition("@")
        arm(name.strip(), _action(what.strip(), float(chance or 1)))


def _action(what: str, chance: float) -> Callable[[], None]:
    def act() -> None:
        if random.random() >= chance:
            return
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif what == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif what == "raise":
            raise RuntimeError("failpoint")
        elif what.startswith("sleep(") and what.endswith(")"):
            time.sleep(float(what[6:-1]))
        else:
            raise ConfigError(f"unknown failpoint action {what!r}; there are: kill, stop, raise, sleep(seconds)")

    return act


if os.environ.get("WINDLASS_FAILPOINTS"):
    arm_from(os.environ["WINDLASS_FAILPOINTS"])

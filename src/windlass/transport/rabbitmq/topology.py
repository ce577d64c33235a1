"""What Windlass keeps in RabbitMQ: the names and arguments of its queues.

    windlass.<queue>.high, .normal, .low   quorum queues; published to by name, through the default exchange
    windlass.dead                          a fanout exchange, and the quorum queue of dead letters behind it

The default exchange needs no bindings, so a queue that was deleted and declared again lacks nothing. Quorum queues of
RabbitMQ 3 have no priorities: hence three queues.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator
from hashlib import blake2b
from typing import Any

from windlass.errors import BrokerRefused, BrokerUnavailable
from windlass.transport.protocol import LEVELS, Level

PREFIX = "windlass"
LONGEST = 255  # bytes of UTF-8 in a name of AMQP
DELIVERY_LIMIT = 2  # after the first: the third delivery is the last
NEVER = 1_000_000_000  # deliveries; RabbitMQ 4 drops after 20 where a queue names no limit, and each listing is one
SPECIAL = re.compile(r"[^A-Za-z0-9_.,@#/+ -]+")
"""What the library lets into no name, although RabbitMQ would; and the colon, which begins an escape."""
INEQUIVALENT = re.compile(r"inequivalent arg '([^']+)'.*?received (.+?) but current is (.+?)$", re.DOTALL)


class Topology:
    """The names below one prefix, and the arguments with which queues are declared."""

    def __init__(self, prefix: str = PREFIX, group_size: int | None = None) -> None:
        self._prefix = prefix
        self.dead = f"{prefix}.dead"
        group = {} if group_size is None else {"x-quorum-initial-group-size": group_size}
        self.arguments: dict[str, Any] = {
            "x-queue-type": "quorum",
            "x-delivery-limit": DELIVERY_LIMIT,
            "x-dead-letter-exchange": self.dead,
            # The copy in the dead-letter queue is confirmed before the original goes. RabbitMQ asks for the overflow.
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
            **group,
        }
        self.dead_arguments: dict[str, Any] = {"x-queue-type": "quorum", "x-delivery-limit": NEVER, **group}

    def name(self, queue: str, level: Level) -> str:
        """The name in RabbitMQ. Other characters than letters, digits and _.,@#/+- are escaped: `ü` is `:C3:BC`.

        A name that is too long is a hash. `Delivery.queue` and the header of each message have the name as it is.
        """
        name = f"{self._prefix}.{_escape(queue)}.{level}"
        if len(name.encode()) <= LONGEST:
            return name
        # No escaped name has two colons in a row.
        return f"{self._prefix}.::{blake2b(queue.encode(), digest_size=32).hexdigest()}.{level}"

    def names(self, queues: Collection[str]) -> Iterator[tuple[str, Level, str]]:
        """Each queue and level with its name."""
        for queue in queues:
            for level in LEVELS:
                yield queue, level, self.name(queue, level)


def _escape(queue: str) -> str:
    return SPECIAL.sub(lambda found: "".join(f":{byte:02X}" for byte in found[0].encode(errors="replace")), queue)


def differing(name: str, vhost: str, problem: str) -> BrokerRefused:
    """The error of a queue or exchange that exists with other arguments."""
    if found := INEQUIVALENT.search(problem):
        difference = f"{found[1]}: Windlass wants {found[2].strip()}, it is {found[3].strip()}"
    else:
        difference = problem
    return BrokerRefused(f"{name} exists with other arguments ({difference}); {repair(name, vhost)}")


class SilentQueue(BrokerUnavailable):
    """A queue gives no answer, while others may."""


def silent(name: str, vhost: str) -> SilentQueue:
    """The error with the next commands."""
    return SilentQueue(
        f"{name} gives no answer: it has no leader, or an alarm is on; ask: rabbitmq-diagnostics alarms; where it "
        f"stays so, {repair(name, vhost)}"
    )


def repair(name: str, vhost: str) -> str:
    """The commands that replace a queue. No job is lost with it: the store delivers them again."""
    delete = f"rabbitmqctl -p {shlex.quote(vhost)} delete_queue {shlex.quote(name)}"
    return f"when it is empty, run: {delete} && windlass broker setup"

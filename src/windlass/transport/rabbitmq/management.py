"""What AMQP does not tell: how many messages of a queue are unacknowledged. RabbitMQ's management plugin counts them.

The option `management` of the URL names its port. Its figures are about ten seconds old.
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any
from urllib.parse import quote
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from windlass.broker_address import BrokerAddress
from windlass.errors import BrokerUnavailable
from windlass.transport.tls import make_context

LIMIT = 5.0  # seconds for one host


async def read_unacknowledged(address: BrokerAddress) -> dict[str, int] | None:
    """By the name in RabbitMQ; None: the URL names no port. Raises BrokerUnavailable."""
    if "management" not in address.options:
        return None
    rows = await asyncio.to_thread(_read, address)
    return {row["name"]: row.get("messages_unacknowledged", 0) for row in rows}


def _read(address: BrokerAddress) -> list[dict[str, Any]]:
    """The queues of the virtual host, from the first host that answers."""
    login = base64.b64encode(f"{address.user or 'guest'}:{address.password or 'guest'}".encode()).decode()
    # No proxy of the environment: AMQP goes straight to the host, too.
    opener = build_opener(ProxyHandler({}), *([HTTPSHandler(context=make_context(address))] if address.has_tls else []))
    problems: list[str] = []
    for host in address.hosts:
        place = f"http{'s' * address.has_tls}://{host._replace(port=int(address.options['management']))}"
        url = f"{place}/api/queues/{quote(address.path, safe='')}?columns=name,messages_unacknowledged"
        try:
            with opener.open(Request(url, headers={"Authorization": f"Basic {login}"}), timeout=LIMIT) as answer:
                return list(json.load(answer))
        except (OSError, ValueError) as problem:  # urllib's errors are OSErrors
            problems.append(f"{place}: {problem}")
    raise BrokerUnavailable(
        f"RabbitMQ's management plugin does not answer ({'; '.join(problems)}); run: rabbitmq-plugins enable "
        "rabbitmq_management, or leave the option management out of the URL"
    )

"""Transports: what carries deliveries to workers. The store is the truth; a lost delivery costs time, never a job."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from windlass.broker_address import read_broker_address
from windlass.errors import ConfigError

if TYPE_CHECKING:
    from windlass.transport.protocol import JobDispatcher

__all__ = ["make_dispatcher"]


def make_dispatcher(url: str) -> JobDispatcher:
    """The transport that a broker's URL names; no connection is opened yet."""
    address = read_broker_address(url)
    if address.kind == "rabbitmq":
        _require("aiormq", "RabbitMQ", "rabbitmq")
        from windlass.transport.rabbitmq.dispatcher import RabbitDispatcher

        return RabbitDispatcher(address)
    _require("redis", "Redis", "redis")
    from windlass.transport.redis_streams import RedisStreams

    return RedisStreams(address)


def _require(module: str, broker: str, extra: str) -> None:
    if find_spec(module) is None:
        raise ConfigError(f"{broker} needs {module}, which is not installed; run: pip install 'windlass[{extra}]'")

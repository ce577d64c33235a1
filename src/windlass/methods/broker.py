"""The broker of these settings, open for one call of a program or of a command."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from windlass.errors import ConfigError

if TYPE_CHECKING:
    from windlass.config import Settings
    from windlass.transport.protocol import JobDispatcher

NO_BROKER = (
    "no broker is set, so that workers poll the database alone; to use one, set broker to its URL: WINDLASS_BROKER, "
    "windlass.toml, or Windlass(broker=…), such as amqp://user:password@host/vhost or redis://:password@host/0"
)


def broker_url(settings: Settings) -> str:
    """The URL of the broker; raises ConfigError where none is set."""
    if settings.broker is None:
        raise ConfigError(NO_BROKER)
    return settings.broker


@asynccontextmanager
async def open_broker(url: str) -> AsyncIterator[JobDispatcher]:
    """A connection for the block; raises BrokerUnavailable or BrokerRefused."""
    from windlass.transport import make_dispatcher

    dispatcher = make_dispatcher(url)
    try:
        await dispatcher.open()
        yield dispatcher
    finally:
        await dispatcher.close()

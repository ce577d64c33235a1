"""What went wrong between Windlass and RabbitMQ, in Windlass's own errors."""

from __future__ import annotations

import asyncio
import shlex

from aiormq.exceptions import (
    AMQPError,
    AuthenticationError,
    ChannelAccessRefused,
    ProbableAuthenticationError,
)

from windlass.broker_address import BrokerAddress
from windlass.errors import BrokerError, BrokerRefused, BrokerUnavailable
from windlass.transport.tls import explain_handshake

FAILURES = (AMQPError, OSError, TimeoutError, RuntimeError, ValueError, asyncio.CancelledError)
"""What the library raises when a connection breaks. It cancels its own futures as well; `is_cancelled` tells that
from a cancellation of the caller."""


def is_cancelled(problem: BaseException) -> bool:
    """Whether the caller's own task is being cancelled."""
    task = asyncio.current_task()
    return isinstance(problem, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def describe(problem: BaseException | None) -> str:
    """What the library or the system said, in one line."""
    if problem is None or isinstance(problem, asyncio.CancelledError):
        return "it was closed"
    if isinstance(problem, TimeoutError):
        return "no answer"
    return " ".join(str(problem).split()) or type(problem).__name__


def translate(problem: BaseException, address: BrokerAddress) -> BrokerError:
    """A failure of the library as Windlass's own error, with the next command."""
    text = describe(problem)
    user, vhost = shlex.quote(address.user or "guest"), shlex.quote(address.path)
    if address.has_tls and (refused := explain_handshake(problem, address)):
        return refused
    if isinstance(problem, AuthenticationError | ProbableAuthenticationError):
        return BrokerRefused(
            f"RabbitMQ at {address.shown} refuses the user {user}: the password is wrong, or there is no such user; "
            f"try: rabbitmqctl authenticate_user {user}"
        )
    # The library drops what RabbitMQ says when it refuses to open a virtual host, and only names the frames.
    if "NOT_ALLOWED" in text or "Connection.OpenOk" in text:
        return BrokerRefused(
            f"RabbitMQ at {address.shown} does not let the user {user} into the virtual host {vhost}; run: "
            f"rabbitmqctl add_vhost {vhost} ; rabbitmqctl set_permissions -p {vhost} {user} '.*' '.*' '.*'"
        )
    if isinstance(problem, ChannelAccessRefused):
        return BrokerRefused(
            f"RabbitMQ at {address.shown} refuses the user {user} a right ({text}); run: rabbitmqctl set_permissions "
            f"-p {vhost} {user} '.*' '.*' '.*'"
        )
    if isinstance(problem, TimeoutError):
        return BrokerUnavailable(
            f"RabbitMQ at {address.shown} does not answer; a memory or disk alarm blocks what publishes: "
            "rabbitmq-diagnostics alarms"
        )
    return BrokerUnavailable(f"RabbitMQ at {address.shown} cannot be used now: {text}")

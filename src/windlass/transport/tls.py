"""TLS to a broker: the context from the options of its URL, and what a failed handshake means."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

from windlass.broker_address import BrokerAddress
from windlass.errors import BrokerRefused

PLAIN = {"amqps": "amqp", "rediss": "redis"}


def make_context(address: BrokerAddress) -> ssl.SSLContext | None:
    """None: the URL asks for no TLS. Raises BrokerRefused where the files of its options cannot be used."""
    if not address.has_tls:
        return None
    files = address.options
    try:
        context = ssl.create_default_context(cafile=files.get("cafile"))
        if "certfile" in files:
            context.load_cert_chain(files["certfile"], files.get("keyfile"))
    except OSError as problem:  # ssl.SSLError is one
        raise BrokerRefused(
            f"the files in the options of {address.shown} cannot be used: {problem}; name PEM files that this account "
            "may read"
        ) from None
    return context


def explain_handshake(problem: BaseException, address: BrokerAddress) -> BrokerRefused | None:
    """What TLS refused, with its repair; None: the problem is another one. A new try would meet the same."""
    for each in _chain(problem):
        if isinstance(each, ssl.SSLCertVerificationError):
            return BrokerRefused(
                f"the certificate of {address.shown} is not trusted: {each.verify_message}; name the PEM file of the "
                f"authority that signed it: {address.scheme}://…?cafile=/path/ca.pem, and a host that the certificate "
                "names"
            )
        if isinstance(each, ssl.SSLError):
            reason = getattr(each, "reason", None)  # an error that Python raises itself has none
            return BrokerRefused(
                f"TLS with {address.shown} failed: {reason or each}; where the port has no TLS, write "
                f"{PLAIN[address.scheme]}://; where the server asks for a certificate, name one: "
                "?certfile=client.pem&keyfile=client.key"
            )
    return None


def _chain(problem: BaseException | None) -> Iterator[BaseException]:
    while problem is not None:
        yield problem
        problem = problem.__cause__ or problem.__context__

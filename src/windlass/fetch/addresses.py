"""Which addresses belong to the public internet: an explicit list."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from windlass.errors import ConfigError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Not public, by the registries of IANA (special-purpose addresses) and not by `ipaddress.is_global`, whose answer
# changed between versions of Python: before 3.12.4 it called 192.0.0.0/24 and parts of 2001::/23 public.
PRIVATE_4 = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
        *("203.0.113.0/24", "224.0.0.0/3"),
        "168.63.129.16/32",  # public by its number: the host of a virtual machine on Azure
    )
)
PUBLIC_6 = ipaddress.IPv6Network("2000::/3")  # without: loopback, mapped (::ffff:), NAT64, unique local, link-local, …
PRIVATE_6 = tuple(
    ipaddress.IPv6Network(network)
    for network in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")  # Teredo and 6to4 contain an IPv4 address
)


def is_public(address: str) -> bool:
    """Whether an address belongs to the public internet."""
    number = ipaddress.ip_address(address)
    if isinstance(number, ipaddress.IPv4Address):
        return not any(number in network for network in PRIVATE_4)
    return number in PUBLIC_6 and not any(number in network for network in PRIVATE_6)


def is_in(address: str, networks: Iterable[Network]) -> bool:
    """Whether an address belongs to one of these networks."""
    return any(ipaddress.ip_address(address) in network for network in networks)


def parse_networks(allow: Iterable[str]) -> tuple[Network, ...]:
    """The addresses and networks that `Fetcher(allow=…)` names."""
    if isinstance(allow, str):
        raise ConfigError(f"Fetcher(allow={allow!r}) is a text; write a list: allow=[{allow!r}]")
    try:
        return tuple(ipaddress.ip_network(network) for network in allow)
    except ValueError as error:
        raise ConfigError(f"Fetcher(allow=…): {error}; write addresses or networks: ['127.0.0.1']") from None

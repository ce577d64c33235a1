"""A broker's URL, parsed once: its parts, and the form in which it may be printed.

The rules of `address.py` hold here as well: only parsed parts are ever printed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote, unquote

from windlass.address import ESCAPE, SERVER, URL, Host, read_host, read_options
from windlass.errors import ConfigError

Kind = Literal["rabbitmq", "redis", "sentinel"]

SCHEMES: dict[str, tuple[Kind, int]] = {
    # scheme: what it leads to, and the port where the URL names none
    "amqp": ("rabbitmq", 5672),
    "amqps": ("rabbitmq", 5671),
    "redis": ("redis", 6379),
    "rediss": ("redis", 6379),
    "redis+sentinel": ("sentinel", 26379),
}
TLS = frozenset({"cafile", "certfile", "keyfile"})
OPTIONS: dict[str, frozenset[str]] = {
    "amqp": frozenset({"group_size", "management", "prefix"}),
    "amqps": frozenset({"group_size", "management", "prefix"}) | TLS,
    "redis": frozenset(),
    "rediss": TLS,
    "redis+sentinel": frozenset(),
}
FORMS = (
    "write amqp://user:password@host/vhost, amqps://…, redis://:password@host/0, rediss://… or "
    "redis+sentinel://host1,host2/primary/0"
)
LARGEST_GROUP = 64  # members of a quorum queue: a number above is a slip of the keyboard
BROKER = "the broker's URL"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAddress:
    """The parts of a URL."""

    scheme: str
    kind: Kind
    hosts: tuple[Host, ...]  # at least one; each has its port
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    path: str  # a virtual host; the number of a database; of a sentinel: the name of the primary, /, the number
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def has_tls(self) -> bool:
        return self.scheme in ("amqps", "rediss")

    @property
    def database(self) -> int:
        """The number of the Redis database."""
        return int(self.path.rpartition("/")[2])

    @property
    def primary(self) -> str:
        """By what name the sentinels know the primary."""
        return self.path.rpartition("/")[0]

    @property
    def shown(self) -> str:
        """The URL as it may be printed."""
        login = "" if self.user is None else quote(self.user, safe="")
        login += "" if self.password is None else ":…"
        hosts = ",".join(str(host) for host in self.hosts)
        path = quote(self.path, safe="/" if self.kind == "sentinel" else "")
        options = "&".join(f"{name}={quote(value, safe='/,-')}" for name, value in self.options.items())
        return f"{self.scheme}://{login}{'@' if login else ''}{hosts}/{path}{'?' if options else ''}{options}"


def read_broker_address(url: str) -> BrokerAddress:
    """The URL's parts; raises ConfigError, which shows no part that could not be parsed."""
    match = URL.fullmatch(url.strip())
    if match is None:
        raise ConfigError(f"{BROKER} has no scheme; {FORMS}")
    scheme, rest = match[1].lower(), match[2]
    if scheme not in SCHEMES:
        raise ConfigError(f"{match[1]}:// is not a broker Windlass knows; {FORMS}")
    if "#" in rest:
        raise ConfigError(f"{BROKER} has a # in it, which ends a URL; {ESCAPE}")
    parts = SERVER.fullmatch(rest)
    assert parts is not None, "every part may be empty"
    authority, path, query = (part or "" for part in parts.groups())
    if "@" in path or "@" in query:
        raise ConfigError(f"{BROKER} has an @ after its first / or ?, where the host has ended; {ESCAPE}")
    login, _, places = authority.rpartition("@")  # the last @: a host has none
    user, _, password = login.partition(":")
    kind, port = SCHEMES[scheme]
    return BrokerAddress(
        scheme=scheme,
        kind=kind,
        hosts=tuple(read_host(place, port, BROKER, FORMS) for place in (places or "localhost").split(",")),
        user=unquote(user) or None,
        password=unquote(password) or None,
        path=_path(kind, path),
        options=_options(scheme, query),
    )


def masked_broker(url: str) -> str:
    """The URL as it may be printed: its parsed parts, without the password."""
    try:
        return read_broker_address(url).shown
    except ConfigError:
        return "a URL that cannot be read"


def _path(kind: Kind, path: str) -> str:
    if kind == "rabbitmq":
        # amqp://host and amqp://host/ mean the virtual host that every new server has, whose name is one slash.
        name = unquote(path) or "/"
        if len(name.encode(errors="replace")) > 255:
            raise ConfigError(f"{BROKER} has a virtual host of more than 255 bytes; {FORMS}")
        return name
    primary, _, number = (
        path.rpartition("/") if "/" in path else (path, "", "") if kind == "sentinel" else ("", "", path)
    )
    if kind == "sentinel" and not primary:
        raise ConfigError(
            f"{BROKER} does not name the primary; write redis+sentinel://host1:26379,host2:26379/mymaster/0"
        )
    if (primary and kind == "redis") or not (number == "" or (number.isdecimal() and number.isascii())):
        raise ConfigError(f"{BROKER} ends with a database that is not a number; {FORMS}")
    return f"{unquote(primary)}/{number or 0}" if kind == "sentinel" else number or "0"


def _options(scheme: str, query: str) -> dict[str, str]:
    options = read_options(query, BROKER)
    for name in options:
        if name not in OPTIONS[scheme]:
            known = ", ".join(sorted(OPTIONS[scheme])) or "none"
            hint = "; TLS needs amqps:// or rediss://" if name in TLS else ""
            raise ConfigError(f"{BROKER} has the option {name}, and {scheme}:// knows {known}{hint}")
    size = options.get("group_size", "1")
    if not (size.isdecimal() and size.isascii() and len(size) < 4 and 1 <= int(size) <= LARGEST_GROUP):
        raise ConfigError(
            f"{BROKER} has a group_size that is not a number from 1 to {LARGEST_GROUP}; write ?group_size=3"
        )
    if not re.fullmatch(r"[1-9][0-9]{0,4}", options.get("management", "15672")):
        raise ConfigError(f"{BROKER} has a management port that is not a number; write ?management=15672")
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,32}", options.get("prefix", "windlass")):
        raise ConfigError(f"{BROKER} has a prefix that is not 1 to 32 letters, digits, _ or -; write ?prefix=windlass")
    if ("keyfile" in options) and "certfile" not in options:
        raise ConfigError(f"{BROKER} has a keyfile without a certfile; write ?certfile=client.pem&keyfile=client.key")
    return options

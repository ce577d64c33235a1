"""A store's URL, parsed once: its parts, and the form in which it may be printed.

Only parsed parts are ever printed. A URL that cannot be parsed may hold its password anywhere, so the error names the
problem and shows no part of the URL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from urllib.parse import quote, unquote

from windlass.errors import ConfigError

SCHEMES = {"postgresql": "postgres", "postgres": "postgres", "sqlite": "sqlite"}
SQLITE = "sqlite:///"
URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
SERVER = re.compile(r"([^/?]*)(?:/([^?]*))?(?:\?(.*))?", re.DOTALL)
HOST = re.compile(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^:\[\]\s@]+))(?::([0-9]{1,5}))?")
DRIVER = re.compile(r"^(postgres|postgresql|sqlite)\+\w+(?=://)", re.IGNORECASE)
KEYS_AND_VALUES = re.compile(r"\s*[a-z_]+\s*=")  # libpq's other form

SHOWN = frozenset({"sslmode", "sslnegotiation", "target_session_attrs", "application_name", "service"})
"""Options that are printed with their values; other options are printed by name only."""
FORMS = "write postgresql://user@host/database or sqlite:///file.db"
ESCAPE = (
    "a password in a URL is written with % codes: / is %2F, ? is %3F, # is %23, @ is %40, % is %25; "
    """to get them: python -c "from urllib.parse import quote; print(quote(input(), safe=''))\""""
)


class Host(NamedTuple):
    """One of the servers in a URL; a name that begins with / is a directory with a socket."""

    name: str
    port: int | None

    def __str__(self) -> str:
        name = f"[{self.name}]" if ":" in self.name else quote(self.name, safe="")
        return name if self.port is None else f"{name}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The parts of a URL. With empty `hosts` the driver's own defaults apply."""

    dialect: str
    path: str | None = None  # of a SQLite file, as the user wrote it
    hosts: tuple[Host, ...] = ()
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    database: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def preferring(self, host: Host | None) -> Address:
        """The same address with that host first: it accepted writes a moment ago."""
        if host is None or self.hosts[0] == host:
            return self
        return replace(self, hosts=(host, *(each for each in self.hosts if each != host)))

    @property
    def shown(self) -> str:
        """The URL as it may be printed."""
        if self.path is not None:
            return f"{SQLITE}{self.path}"
        login = "" if self.user is None else quote(self.user, safe="")
        login += "" if self.password is None else ":…"
        hosts = ",".join(str(host) for host in self.hosts)
        database = "" if self.database is None else f"/{quote(self.database, safe='')}"
        options = "&".join(
            f"{name}={quote(value, safe='/,-') if name in SHOWN else '…'}" for name, value in self.options.items()
        )
        return f"postgresql://{login}{'@' if login else ''}{hosts}{database}{'?' if options else ''}{options}"


def plain_url(url: str) -> str:
    """The URL without SQLAlchemy's driver: `postgresql+asyncpg://…` is `postgresql://…`."""
    return DRIVER.sub(r"\1", url.strip())


def read_address(url: str) -> Address:
    """The URL's parts; raises ConfigError, which shows no part that could not be parsed."""
    text = plain_url(url)
    match = URL.fullmatch(text)
    if match is None:
        kind = "is in libpq's key=value form" if KEYS_AND_VALUES.match(text) else "has no scheme"
        raise ConfigError(f"the store's URL {kind}; {FORMS}")
    scheme, rest = match.groups()
    dialect = SCHEMES.get(scheme.lower())
    if dialect is None:
        raise ConfigError(f"{scheme}:// is not a store Windlass knows; {FORMS}")
    if dialect == "postgres":
        return _server(rest)
    if not text.startswith(SQLITE):
        raise ConfigError("a SQLite URL has three slashes before its file; write sqlite:///jobs.db")
    return Address(dialect="sqlite", path=text.removeprefix(SQLITE))


def masked(url: str) -> str:
    """The URL as it may be printed: its parsed parts, without the password."""
    try:
        return read_address(url).shown
    except ConfigError:
        return "a URL that cannot be read"


def _server(rest: str) -> Address:
    if "#" in rest:
        raise ConfigError(f"the store's URL has a # in it, which ends a URL; {ESCAPE}")
    match = SERVER.fullmatch(rest)
    assert match is not None, "every part may be empty"
    authority, database, query = (part or "" for part in match.groups())
    if "@" in database or "@" in query:
        raise ConfigError(f"the store's URL has an @ after its first / or ?, where the host has ended; {ESCAPE}")
    login, _, places = authority.rpartition("@")  # the last @: a host has none
    options = read_options(query, "the store's URL")
    user, _, password = login.partition(":")
    host = options.pop("host", "")
    hosts = _hosts(places or host, options.pop("port", ""))
    named = options.pop("dbname", None), options.pop("database", None), options.pop("user", None)
    hidden = options.pop("password", None)
    return Address(
        dialect="postgres",
        hosts=hosts,
        user=unquote(user) or named[2],
        password=unquote(password) or hidden,
        database=unquote(database) or named[0] or named[1],
        options=options,
    )


def _hosts(places: str, ports: str) -> tuple[Host, ...]:
    if not places and not ports:
        return ()
    names = (places or "localhost").split(",")
    numbers = ports.split(",") if ports else [""]
    if len(numbers) not in (1, len(names)) or not all(number == "" or number.isdecimal() for number in numbers):
        raise ConfigError("the store's URL has ports that do not fit its hosts; write host:port,host:port")
    return tuple(_host(name, numbers[at % len(numbers)]) for at, name in enumerate(names))


def _host(place: str, number: str) -> Host:
    port = int(number) if number else None
    if place.startswith("/"):
        return Host(place, port)
    return read_host(place, port, "the store's URL", "write postgresql://user@host:5432/database")


def read_host(place: str, port: int | None, url: str, advice: str) -> Host:
    """`host`, `host:port` or `[::1]:port`; `port` is the default. `url` is what the error calls the URL."""
    match = HOST.fullmatch(place)
    if match is None or int(match[3] or 0) > 65_535:
        raise ConfigError(f"{url} has a host or port that cannot be; {advice}; {ESCAPE}")
    return Host(unquote(match[1] or match[2]), int(match[3]) if match[3] else port)


def read_options(query: str, url: str) -> dict[str, str]:
    """What stands after the ? of a URL."""
    options: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        name, equals, value = part.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][\w.]*", name, re.ASCII):
            raise ConfigError(f"{url} has an option after its ? that is not name=value; {ESCAPE}")
        options[name] = unquote(value)
    return options


def trace_link(value: object) -> str:
    """The setting `trace_url`. A link of another scheme than http could run code in the dashboard."""
    url = str(value)
    if not url.startswith(("http://", "https://")) or "{trace_id}" not in url:
        raise ConfigError("give an http(s) URL with {trace_id}, such as https://jaeger.example/trace/{trace_id}")
    return url

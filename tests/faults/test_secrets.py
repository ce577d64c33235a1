"""A URL is written wrongly, and its password is in it: the error names what is wrong, and the password is nowhere."""

from __future__ import annotations

import logging
import traceback

import pytest
from click.testing import CliRunner

from windlass import Windlass
from windlass.address import masked, read_address
from windlass.cli.main import cli
from windlass.config import Settings
from windlass.errors import ConfigError, StoreError

UNREADABLE = [
    "postgresql://ann:hun/ter2@127.0.0.1:1/db",
    "postgresql://ann:hun?ter2@127.0.0.1:1/db",
    "postgresql://ann:hun#ter2@127.0.0.1:1/db",
    "postgresql://ann:1/ter2@127.0.0.1:1/db",
    "postgresql://ann:1?a=hunter2@127.0.0.1:1/db",
    "postgresql://ann:hun@ter/2@127.0.0.1:1/db",
    "postgresql://ann:hunter2/db",
    "postgresql://127.0.0.1:1/db?hunter2",
    "host=127.0.0.1 port=1 user=ann password=hunter2 dbname=db",
    "password = hunter2",
    "ann:hunter2@127.0.0.1:1/db",
    "postgresql:ann:hunter2@127.0.0.1:1/db",
    "mysql://ann:hunter2@127.0.0.1:1/db",
    "sqlite://ann:hunter2@127.0.0.1/db",
]
READABLE = [
    "postgresql://ann:hunter2@127.0.0.1:1/db",
    "postgresql://ann:hun%2Fter2@127.0.0.1:1/db",
    "postgresql://ann:hun@ter2@127.0.0.1:1/db",
    "postgresql://ann:hun[ter2@127.0.0.1:1/db",
    "postgresql://ann@127.0.0.1:1/db?password=hunter2",
    "postgresql://ann@127.0.0.1:1/db?sslpassword=hunter2&options=-c%20a.b%3Dhunter2",
    "postgresql://ann:hunter2@127.0.0.1:1,127.0.0.1:2/db?target_session_attrs=read-write",
    "postgresql://ann:hunter2@127.0.0.1:1/db?sslmode=nonsense",
]
COMMANDS = [["migrate"], ["config"], ["config", "--json"], ["doctor"], ["jobs", "list"]]


def is_hidden(text: str) -> bool:
    return not any(piece in text for piece in ("hunter2", "hun/", "hun?", "hun#", "hun@", "hun[", "ter2"))


@pytest.mark.parametrize("url", UNREADABLE + READABLE)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_prints_a_password(url: str, command: list[str]) -> None:
    for given in ({"WINDLASS_URL": url}, {"WINDLASS_DIRECT_URL": url, "WINDLASS_URL": "postgresql://127.0.0.1:1/db"}):
        result = CliRunner().invoke(cli, command, env=given)

        assert is_hidden(result.output), result.output
        assert isinstance(result.exception, (SystemExit, type(None)))
        assert "Traceback" not in result.output


@pytest.mark.parametrize("url", UNREADABLE)
def test_an_unreadable_url_is_refused_with_what_to_write(url: str) -> None:
    with pytest.raises(ConfigError, match=r"write|written") as caught:
        Windlass(url)

    assert is_hidden("".join(traceback.format_exception(caught.value)).replace(url, ""))
    assert is_hidden(masked(url))


@pytest.mark.parametrize("url", READABLE)
def test_nothing_that_speaks_of_a_url_has_its_password(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    settings = Settings.load({}, url=url, direct_url=url)
    assert is_hidden(repr(settings) + repr(read_address(url)) + masked(url))

    app = Windlass(url)
    with pytest.raises((StoreError, ConfigError)) as caught:
        app.counts()
    app.close()

    assert is_hidden("".join(traceback.format_exception(caught.value)) + caplog.text)


def test_what_a_url_says_is_read_as_it_was_meant() -> None:
    address = read_address("postgres://a%40b:p%2Fw@[::1]:5433,db-2/my%20jobs?host=x&sslmode=require&a.b=c")

    assert (address.user, address.password, address.database) == ("a@b", "p/w", "my jobs")
    assert [(host.name, host.port) for host in address.hosts] == [("::1", 5433), ("db-2", None)]
    assert address.shown == "postgresql://a%40b:…@[::1]:5433,db-2/my%20jobs?sslmode=require&a.b=…"

    socket = read_address("postgresql:///jobs?host=/run/postgresql&port=6432&user=ann")
    assert (socket.user, socket.hosts, socket.database) == ("ann", (("/run/postgresql", 6432),), "jobs")

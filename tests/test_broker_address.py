"""Brokers' URLs: their parts, what is printed of them, and what is refused."""

from __future__ import annotations

import pytest

from windlass.address import Host
from windlass.broker_address import masked_broker, read_broker_address
from windlass.errors import ConfigError

SECRET = "p4ss/w?rd#@%"
ESCAPED = "p4ss%2Fw%3Frd%23%40%25"


@pytest.mark.parametrize(
    ("url", "kind", "hosts", "path"),
    [
        ("amqp://", "rabbitmq", [("localhost", 5672)], "/"),
        ("amqp://one/", "rabbitmq", [("one", 5672)], "/"),
        ("amqps://one/%2F", "rabbitmq", [("one", 5671)], "/"),
        ("AMQP://one,two:5673/jobs", "rabbitmq", [("one", 5672), ("two", 5673)], "jobs"),
        ("amqp://[::1]:99/a%2Fb", "rabbitmq", [("::1", 99)], "a/b"),
        ("redis://one", "redis", [("one", 6379)], "0"),
        ("rediss://one:1/7", "redis", [("one", 1)], "7"),
        ("redis+sentinel://one:26379,two/mymaster/3", "sentinel", [("one", 26379), ("two", 26379)], "mymaster/3"),
        ("redis+sentinel://one/mymaster", "sentinel", [("one", 26379)], "mymaster/0"),
    ],
)
def test_a_broker_url_has_its_parts(url: str, kind: str, hosts: list[tuple[str, int]], path: str) -> None:
    address = read_broker_address(url)

    assert (address.kind, address.hosts, address.path) == (kind, tuple(Host(*host) for host in hosts), path)


def test_the_numbers_and_names_in_the_path_of_redis() -> None:
    sentinel = read_broker_address("redis+sentinel://one/mymaster/3")

    assert (sentinel.primary, sentinel.database) == ("mymaster", 3)
    assert read_broker_address("redis://one/7").database == 7


def test_a_password_is_read_and_never_printed() -> None:
    address = read_broker_address(f"amqps://ann:{ESCAPED}@one,two/jobs?group_size=3&cafile=/etc/ca.pem")

    assert (address.user, address.password) == ("ann", SECRET)
    assert address.shown == "amqps://ann:…@one:5671,two:5671/jobs?group_size=3&cafile=/etc/ca.pem"
    assert "p4ss" not in repr(address)
    assert read_broker_address("redis://:x@one/1").shown == "redis://:…@one:6379/1"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("p4ss", "has no scheme; write amqp://"),
        ("kafka://one", "kafka:// is not a broker"),
        ("amqp://ann:p4ss#@one", "has a # in it"),
        ("amqp://ann:p4ss/x@one", "%2F"),
        ("amqp://ann:p4ss?x@one", "%3F"),
        ("amqp://one:p4ss:x", "host or port that cannot be"),
        ("amqp://one:99999", "host or port that cannot be"),
        ("amqp://one,,two", "host or port that cannot be"),
        ("redis://one/p4ss", "not a number"),
        ("redis://one/a/0", "not a number"),
        ("redis+sentinel://one", "does not name the primary"),
        ("redis+sentinel://one/mymaster/p4ss", "not a number"),
        ("amqp://one?p4ss", "not name=value"),
        ("amqp://one?management=p4ss", "management=15672"),
        ("amqp://one?groupsize=p4ss", "knows group_size, management, prefix"),
        ("amqp://one?cafile=p4ss", "TLS needs amqps://"),
        ("amqp://one?group_size=0", "from 1 to 64"),
        ("amqp://one?group_size=p4ss", "from 1 to 64"),
        ("amqp://one?prefix=p4ss.x", "32 letters"),
        ("amqps://one?keyfile=p4ss", "without a certfile"),
    ],
)
def test_an_impossible_url_is_refused_and_not_printed(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("?", r"\?").replace("+", r"\+")) as refused:
        read_broker_address(url)

    assert "p4ss" not in str(refused.value)
    assert masked_broker(url) == "a URL that cannot be read"

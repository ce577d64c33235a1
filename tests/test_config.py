"""Settings: where they come from, which wins, and what is refused."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from windlass import Windlass
from windlass.address import read_address
from windlass.clock import seconds, spell
from windlass.config import Pace, Settings, SettingsArguments, memory_size, names
from windlass.errors import ConfigError


@pytest.mark.parametrize(
    ("variable", "raw", "name", "value"),
    [
        ("WINDLASS_URL", "postgresql://localhost/shop", "url", "postgresql://localhost/shop"),
        ("WINDLASS_LEASE", "2m", "lease", 120.0),
        ("WINDLASS_SWEEP", "1m30s", "sweep", 90.0),
        ("WINDLASS_POLL", "250ms", "poll", 0.25),
        ("WINDLASS_CONCURRENCY", "100", "concurrency", 100),
        ("WINDLASS_PACE", "polite", "pace", Pace.POLITE),
        ("WINDLASS_BEAT", "3", "beat", 3.0),
        ("WINDLASS_MEMORY", "512M", "memory", 512 << 20),
        ("WINDLASS_DIRECT_URL", "postgresql://db/x", "direct_url", "postgresql://db/x"),
        ("WINDLASS_POOLER", "transaction", "pooler", "transaction"),
    ],
)
def test_the_environment_sets_what_nobody_said(variable: str, raw: str, name: str, value: object) -> None:
    assert getattr(Settings.load({variable: raw}), name) == value


def test_every_setting_can_come_from_the_environment_and_says_what_it_is_for() -> None:
    for item in fields(Settings):
        if item.name == "origins":
            continue
        default = getattr(Settings(), item.name)
        raw = "1h" if default is None and "url" not in item.name and item.name != "pooler" else str(default)
        if item.name in ("discovery_batch", "assign_most", "pool_size", "local_queue", "memory", "metrics_port"):
            raw = "7"
        if item.name == "pooler":
            raw = "transaction"
        if item.name == "direct_url":
            raw = "postgresql://db/x"
        if item.name in ("broker", "rates"):
            raw = "redis://host/0"
        if item.name == "trace_url":
            raw = "https://jaeger.example/{trace_id}"
        if item.name == "redact":
            raw = "iban,account_number"

        Settings.load({f"WINDLASS_{item.name.upper()}": raw})

        assert item.metadata["about"]


def test_explicit_beats_the_environment_beats_the_pace_beats_the_default() -> None:
    environment = {"WINDLASS_PACE": "steady", "WINDLASS_POLL": "7s", "WINDLASS_SWEEP": ""}

    settings = Settings.load(environment, health="9s", timeout=None)

    assert (settings.poll, settings.health, settings.sweep, settings.timeout) == (7.0, 9.0, 300.0, 300.0)
    assert (settings.lease, settings.pace) == (30.0, Pace.STEADY)


def test_files_come_after_the_environment_and_say_where_a_value_is_from(tmp_path: Path) -> None:
    (tmp_path / "windlass.toml").write_text('poll = "3s"\nsweep = "8s"\n')
    (tmp_path / "pyproject.toml").write_text('[tool.windlass]\nsweep = "9s"\nhealth = "4s"\n')

    settings = Settings.load({"WINDLASS_POLL": "2s"}, folder=tmp_path, concurrency=3)

    assert (settings.poll, settings.sweep, settings.health, settings.concurrency) == (2.0, 8.0, 4.0, 3)
    assert len({settings.origins[name] for name in ("poll", "sweep", "health", "concurrency")}) == 4


def test_the_environment_is_read_when_an_app_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_URL", "sqlite:///elsewhere.db")
    monkeypatch.setenv("WINDLASS_CONCURRENCY", "3")

    assert Windlass().settings.url == "sqlite:///elsewhere.db"
    assert Windlass("sqlite:///mine.db", concurrency=4).settings.concurrency == 4
    assert Windlass("sqlite:///mine.db").settings.concurrency == 3


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"leese": "1s"}, r"unknown setting 'leese' .*did you mean 'lease'\?"),
        (
            {"lease": "10s", "beat": "5s"},
            r"lease \(10s, argument\) must be at least three beats \(5s each, argument\).*WINDLASS_BEAT\) to 3\.333s",
        ),
        ({"lease": "banana"}, "lease='banana' .* 'banana' is not a duration; write it like"),
        ({"lease": "-5s"}, "not a duration"),
        ({"poll": float("nan")}, "negative or not finite"),
        ({"poll": 0}, "poll must be longer than nothing"),
        ({"margin": "30s"}, "margin .* must be shorter than lease"),
        ({"concurrency": 0}, "concurrency must be at least 1"),
        ({"concurrency": "many"}, "'many' is not a whole number"),
        ({"concurrency": True}, "not a whole number"),
        ({"max_attempts": 0}, "max_attempts must be at least 1"),
        ({"pace": "hasty"}, "pace='hasty'.*'hasty' is no pace; there are: eager, steady, polite"),
        ({"pooler": "session"}, "the only pooler mode is 'transaction'"),
        ({"memory": "lots"}, "'lots' is not a size of memory"),
        ({"timeout": 0}, "timeout must be more than 0"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_write(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Settings.load({}, **given)


def test_a_wrong_variable_is_named() -> None:
    with pytest.raises(ConfigError, match="WINDLASS_LEASE='soon'"):
        Settings.load({"WINDLASS_LEASE": "soon"})


@pytest.mark.parametrize("url", ["mysql://localhost/x", "windlass.db", "", "redis://x"])
def test_a_url_of_no_store_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"postgresql://user@host/database or sqlite:///file\.db"):
        Windlass(url)


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("postgresql+asyncpg://ann:s@db/shop", "postgresql://ann:s@db/shop"),
        ("postgresql+psycopg://db/shop?sslmode=require", "postgresql://db/shop?sslmode=require"),
        ("postgres+psycopg2://db/shop", "postgres://db/shop"),
        ("postgres://db/shop", "postgres://db/shop"),
        ("sqlite+aiosqlite:///jobs.db", "sqlite:///jobs.db"),
        ("sqlite:///a+b://c.db", "sqlite:///a+b://c.db"),
    ],
)
def test_the_driver_of_sqlalchemy_is_left_out_of_a_url(url: str, plain: str) -> None:
    assert Settings.load({}, url=url).url == plain
    assert read_address(url) == read_address(plain)


def test_a_password_is_never_printed() -> None:
    with pytest.raises(ConfigError) as caught:
        Windlass("mysql://me:s3cret@host/db?password=s3cret")

    assert "s3cret" not in str(caught.value)


def test_settings_are_frozen_and_copied_with_changes() -> None:
    settings = Settings()

    assert (settings.with_(poll=3.0).poll, settings.poll) == (3.0, 1.0)
    with pytest.raises(FrozenInstanceError):
        settings.poll = 2.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10s", 10),
        ("5m", 300),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("2", 2),
        (3, 3),
        (timedelta(minutes=2), 120),
        ("1d", 86_400),
    ],
)
def test_durations_as_people_write_them(text: Any, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize(
    "text", ["", "10", "1h banana", "ten seconds", [], None, True, "1e999", timedelta(seconds=-1), "200000w"]
)
def test_what_is_no_duration(text: Any) -> None:
    if text == "10":
        assert seconds(text) == 10
        return
    with pytest.raises(ConfigError):
        seconds(text)


@pytest.mark.parametrize(
    ("value", "text"), [(90.0, "1m30s"), (0.1, "100ms"), (3600, "1h"), (86_461, "1d1m1s"), (2.5, "2.5s")]
)
def test_durations_as_people_read_them(value: float, text: str) -> None:
    assert spell(value) == text
    assert seconds(text) == value


@pytest.mark.parametrize(("text", "size"), [("1K", 1024), ("1.5G", 3 << 29), ("10MiB", 10 << 20), (77, 77), ("77", 77)])
def test_sizes_of_memory(text: Any, size: int) -> None:
    assert memory_size(text) == size


@pytest.mark.parametrize(("word", "value"), [("on", True), ("TRUE", True), ("1", True), ("off", False), (False, False)])
def test_a_switch_is_on_or_off(word: object, value: bool) -> None:
    assert Settings.load({}, crash_counts=word).crash_counts is value


def test_a_switch_that_is_neither_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"WINDLASS_CRASH_COUNTS='maybe' .*neither on nor off"):
        Settings.load({"WINDLASS_CRASH_COUNTS": "maybe"})


# Lists of names


@pytest.mark.parametrize("option", ["queues", "types"])
def test_one_name_is_no_list_of_its_letters(option: str) -> None:
    app = Windlass("sqlite:///x.db")
    wrong: dict[str, Any] = {option: "mail"}

    with pytest.raises(ConfigError, match=rf"{option}='mail' is one name; write a list: {option}=\['mail'\]"):
        app.worker(**wrong)
    with pytest.raises(ConfigError, match=rf"{option}='mail' is one name; write a list: {option}=\['mail'\]"):
        app.lifespan(worker=True, **wrong)
    with pytest.raises(ConfigError, match=rf"{option} lists 7, which is no name; write: {option}=\['mail'\]"):
        app.worker(**{option: [7]})  # type: ignore[arg-type]


# Settings that follow


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"WINDLASS_LEASE": "6s"}, (6.0, 2.0, 1.0)),
        ({"WINDLASS_LEASE": "2m"}, (120.0, 10.0, 5.0)),
        ({"WINDLASS_LEASE": "6s", "WINDLASS_BEAT": "1s"}, (6.0, 1.0, 1.0)),
        ({"WINDLASS_LEASE": "6s", "WINDLASS_MARGIN": "2s"}, (6.0, 2.0, 2.0)),
        ({"WINDLASS_BEAT": "20s"}, (60.0, 20.0, 5.0)),
        ({"WINDLASS_BEAT": "5s"}, (30.0, 5.0, 5.0)),
        ({"WINDLASS_LEASE": "6s", "WINDLASS_PACE": "polite"}, (6.0, 2.0, 1.0)),
        ({"WINDLASS_PACE": "polite"}, (600.0, 60.0, 5.0)),
        ({"WINDLASS_PACE": "polite", "WINDLASS_LEASE": "10m"}, (600.0, 60.0, 5.0)),
        ({"WINDLASS_PACE": "polite", "WINDLASS_BEAT": "20s"}, (600.0, 20.0, 5.0)),
    ],
)
def test_beat_and_margin_follow_the_lease(given: dict[str, str], expected: tuple[float, float, float]) -> None:
    settings = Settings.load(given)

    assert (settings.lease, settings.beat, settings.margin) == expected
    assert settings.with_(concurrency=3).beat == settings.beat


def test_a_changed_lease_keeps_what_was_given_and_moves_what_follows() -> None:
    given = Settings.load({}, lease="60s", beat="5s", margin="10s")
    following = Settings.load({}, lease="6s")

    longer, shorter = given.with_(lease=90.0), following.with_(lease=3.0)

    assert (longer.lease, longer.beat, longer.margin) == (90.0, 5.0, 10.0)
    assert (shorter.lease, shorter.beat, shorter.margin) == (3.0, 1.0, 0.5)
    assert (following.with_(lease=60.0).beat, following.with_(lease=60.0).margin) == (10.0, 5.0)


def test_a_change_of_something_else_moves_nothing() -> None:
    made = Settings(lease=2.0, beat=0.5, margin=1.0)  # without origins: a margin that would not follow from the lease

    assert (made.with_(concurrency=3).beat, made.with_(concurrency=3).margin) == (0.5, 1.0)


def test_a_setting_that_follows_tells_what_it_follows() -> None:
    settings = Settings.load({"WINDLASS_LEASE": "6s"})

    assert (settings.origins["lease"], settings.origins["beat"]) == ("environment", "follows lease")


def test_every_setting_is_an_argument_that_an_editor_knows() -> None:
    assert [*SettingsArguments.__annotations__] == [name for name in names() if name != "url"]


def test_a_brokers_password_is_in_no_repr_and_no_error() -> None:
    settings = Settings.load({"WINDLASS_BROKER": "amqp://app:geheim@rabbit/jobs"})

    assert settings.broker == "amqp://app:geheim@rabbit/jobs"
    assert "geheim" not in repr(settings)
    with pytest.raises(ConfigError) as refused:
        Settings.load({"WINDLASS_BROKER": "kafka://app:geheim@host"})
    assert "kafka:// is not a broker" in str(refused.value)
    assert "geheim" not in str(refused.value)


def test_a_broker_and_the_steady_pace_are_refused_together() -> None:
    with pytest.raises(ConfigError, match=r"pace=steady scans by the clock .*set pace \(WINDLASS_PACE\) to 'eager'"):
        Settings.load({"WINDLASS_BROKER": "redis://host/0", "WINDLASS_PACE": "steady"})


@pytest.mark.parametrize(("name", "word"), [("delivery", "inbox"), ("undelivered_action", "forget")])
def test_a_word_that_a_setting_does_not_know_is_refused(name: str, word: str) -> None:
    with pytest.raises(ConfigError, match=rf"WINDLASS_{name.upper()}='{word}' \(environment\): '{word}' is none of: "):
        Settings.load({f"WINDLASS_{name.upper()}": word})

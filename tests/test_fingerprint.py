"""Errors that differ only in ids, numbers and places have one fingerprint; other errors have their own."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.policy import fingerprint as module
from windlass.policy.fingerprint import LONGEST_PATTERN, fingerprint, pattern

WORDS = st.lists(
    st.sampled_from(["no", "answer", "from", "the", "server", "isn't", "user", "order", "failed:", "(again)", "is"]),
    min_size=1,
    max_size=8,
)
HEX = st.text("0123456789abcdef", min_size=32, max_size=64)
NAMES = st.text("abcdefghij", min_size=1, max_size=12)
QUOTABLE = st.text(st.characters(exclude_characters="\"'`\n\r", exclude_categories=["Cs"]), max_size=40)
CHANGING: dict[str, st.SearchStrategy[str]] = {
    "number": st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)).map(str),
    "uuid": st.uuids().map(str),
    "hex": HEX,
    "address in memory": st.integers(0, 2**64).map(hex),
    "time": st.datetimes().map(lambda at: at.isoformat()),
    "double quotes": QUOTABLE.map(lambda text: f'"{text}"'),
    "single quotes": QUOTABLE.map(lambda text: f"'{text}'"),
    "IPv4": st.ip_addresses(v=4).map(str),
    "IPv6": st.ip_addresses(v=6).map(str),
    "email": st.tuples(NAMES, NAMES).map(lambda names: f"{names[0]}@{names[1]}.org"),
    "path": st.lists(NAMES, min_size=2, max_size=6).map(lambda names: "/" + "/".join(names)),
    "list of numbers": st.lists(st.integers(), min_size=1, max_size=9).map(lambda found: ", ".join(map(str, found))),
}
IDS = st.one_of(*CHANGING.values())


@given(before=WORDS, after=WORDS, one=IDS, other=IDS)
def test_messages_that_differ_in_ids_only_are_one_group(
    before: list[str], after: list[str], one: str, other: str
) -> None:
    first, second = (" ".join([*before, changing, *after]) for changing in (one, other))

    assert pattern(first) == pattern(second) == " ".join([*before, "…", *after])
    assert fingerprint("ValueError", first) == fingerprint("ValueError", second)


@given(words=WORDS, host=NAMES, places=st.lists(st.text("abc/?=&,;1", max_size=30), min_size=2, max_size=2))
def test_urls_differ_in_their_host_only(words: list[str], host: str, places: list[str]) -> None:
    first, second = (" ".join([*words, f"https://{host}.org/{place}"]) for place in places)

    assert fingerprint("E", first) == fingerprint("E", second)
    assert f"https://{host}.org/…" in pattern(first)


@given(types=st.lists(st.text(max_size=40), min_size=2, max_size=2, unique=True), message=st.text())
def test_different_types_are_different_groups(types: list[str], message: str) -> None:
    assert fingerprint(types[0], message) != fingerprint(types[1], message)


@given(message=st.text() | st.lists(IDS).map(" ".join))
def test_a_pattern_is_one_short_line_of_any_text(message: str) -> None:
    found = pattern(message)

    assert len(found) <= LONGEST_PATTERN
    assert "\n" not in found
    assert found == found.strip()
    assert len(fingerprint("E", message)) == 12


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("division by zero", "division by zero"),
        ("user 'ann' (id 42) not found", "user … (id …) not found"),
        ("can't reach it, isn't there", "can't reach it, isn't there"),
        ("[Errno 2] No such file or directory: '/tmp/x'", "[Errno …] No such file or directory: …"),
        ("connect to db-3.internal:5432 failed", "connect to db-….internal:… failed"),
        ("GET https://ann:secret@api.example.org/v1?x=1 timed out", "GET https://api.example.org/… timed out"),
        ("<Session object at 0x7f3a1c>", "<Session object at …>"),
        ("order A-1009 of 2026-01-02 10:00:05", "order A-… of …"),
        ("took 1,234.5 ms, and/or failed: N/A", "took … ms, and/or failed: N/A"),
        ("commit 4f2c1a9 is gone, and so is a1b2c3", "commit … is gone, and so is …"),
        ("the facade was defaced", "the facade was defaced"),
        ('duplicate key "users_key"\nDETAIL: Key (email)=(a@b.c)', "duplicate key …"),
        ("\n\n  late\ttext  ", "late text"),
        ("x" * 400, "x" * 299 + "…"),
        ("", ""),
    ],
)
def test_a_pattern_keeps_the_words(message: str, expected: str) -> None:
    assert pattern(message) == expected


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    """It is stored: a change of these digits is a change of every group."""
    code = "from windlass.policy.fingerprint import fingerprint as f; print(f('E', 'order 7'), f('Ü', '\\udc00'))"
    made = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.split()[0]
        for seed in ("1", "2")
    }

    assert made == {fingerprint("E", "order 8")} == {"8f5b0db41abe"}


HOSTILE = [
    '"',
    "'",
    "`",
    "“",
    " '",
    "a.",
    "1",
    "a1",
    "f",
    "a@",
    "/",
    "\\",
    "1.",
    ":",
    "a://",
    "1,",
    "…",
    "-1",
    "\n",
    ":/a",
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_hostile_text_is_read_in_one_pass(monkeypatch: pytest.MonkeyPatch, piece: str) -> None:
    """Were a part of the text read again at each of its characters, these would be 10^10 steps, and the test would not
    end. `pattern` reads the beginning of a message only; here it reads all of it.
    """
    monkeypatch.setattr(module, "LONGEST_READ", 100_000)

    assert len(pattern(piece * (100_000 // len(piece)))) <= LONGEST_PATTERN

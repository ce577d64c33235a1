"""The envelope: what is written can be read, the published schema is the code's, and every broken field is refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4, uuid5

import jsonschema_rs
import msgspec
import pytest

from windlass.errors import EnvelopeError
from windlass.model.delivery import OutboxKind, OutboxRow
from windlass.payload import profile
from windlass.transport import envelope
from windlass.transport.envelope import decode, encode

SCHEMA = Path(__file__).parents[2] / "docs" / "envelope.schema.json"
JOB = UUID("0192f3a4-5b6c-7d8e-9fa0-b1c2d3e4f506")
AT = datetime(2024, 12, 24, 12, 0, tzinfo=UTC)
EXAMPLE: dict[str, Any] = {
    "header": {
        "job_id": "7d3e8f5a-9d0c-4a53-8f3e-3a1d2c4b5e6f",
        "type": "entity.match",
        "version": "1.0",
        "created_at": "2024-12-24T12:00:00Z",
        "attempt": 1,
        "max_attempts": 3,
    },
    "body": {"project_id": 50, "task_id": 1024, "dataset_entry_id": 500},
    "tracing": {"trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331"},
}


def row(**changes: Any) -> OutboxRow:
    given = OutboxRow(
        id=1,
        kind=OutboxKind.DELIVER,
        job=JOB,
        queue="mail",
        priority=0,
        type="entity.match",
        input='{"task_id": 1024}',
        trace=None,
        created_at=AT,
        attempt=1,
        max_attempts=3,
    )
    return msgspec.structs.replace(given, **changes)


def changed(path: str, value: object) -> bytes:
    """The example with one value changed; the value `...` removes it."""
    document = json.loads(json.dumps(EXAMPLE))
    *outer, last = path.split(".")
    place = document
    for name in outer:
        place = place[name]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return json.dumps(document).encode()


# Published


def test_the_published_schema_is_what_the_code_says() -> None:
    assert json.loads(SCHEMA.read_text()) == envelope.schema(), (
        'write it again: python -c "import json; from windlass.transport.envelope import schema; '
        'print(json.dumps(schema(), indent=2))" > docs/envelope.schema.json'
    )


def test_the_example_is_valid_for_the_schema_and_for_the_code() -> None:
    read = decode(json.dumps(EXAMPLE).encode())

    jsonschema_rs.validate(envelope.schema(), EXAMPLE, validate_formats=True)
    assert read.header.job_id == UUID(EXAMPLE["header"]["job_id"])
    assert read.header.created_at == AT
    assert read.body == EXAMPLE["body"]


# Written


def test_an_envelope_is_written_as_it_is_described() -> None:
    payload = encode(row())

    jsonschema_rs.validate(envelope.schema(), json.loads(payload), validate_formats=True)
    assert b'"created_at":"2024-12-24T12:00:00Z"' in payload
    assert b'"body":{"task_id": 1024}' in payload  # the text of the store, byte by byte
    assert decode(payload).header.attempt == 1


def test_a_time_of_another_zone_is_written_with_z() -> None:
    payload = encode(row(created_at=AT.astimezone(timezone(timedelta(hours=2)))))

    assert b'"2024-12-24T12:00:00Z"' in payload


def test_without_a_trace_the_ids_come_from_the_job_and_the_attempt() -> None:
    first, again, second = (decode(encode(row(attempt=attempt))).tracing for attempt in (1, 1, 2))

    assert first == again
    assert first.trace_id == second.trace_id == JOB.hex
    assert first.span_id != second.span_id


def test_the_trace_of_the_caller_is_kept() -> None:
    tracing = decode(encode(row(trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))).tracing

    assert (tracing.trace_id, tracing.span_id) == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")


@pytest.mark.parametrize(
    "trace",
    ["", "nonsense", f"00-{'0' * 32}-b7ad6b7169203331-01", f"00-{'a' * 32}-{'0' * 16}-01", f"00-{'A' * 32}-x-01"],
)
def test_a_trace_that_is_none_is_replaced(trace: str) -> None:
    assert decode(encode(row(trace=trace))).tracing.trace_id == JOB.hex


@pytest.mark.parametrize("job", [uuid4(), uuid5(JOB, "x"), JOB, UUID(int=0)])
def test_any_uuid_is_a_job(job: UUID) -> None:
    assert decode(encode(row(job=job))).header.job_id == job


def test_a_job_that_died_before_its_first_attempt_has_an_envelope() -> None:
    assert decode(encode(row(attempt=0))).header.attempt == 1


def test_an_attempt_that_an_operator_granted_has_an_envelope() -> None:
    assert decode(encode(row(attempt=4, max_attempts=3))).header.max_attempts == 4


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"input": "[1]"}, "not a JSON object"),
        ({"input": '{"a": "' + "x" * profile.LARGEST + '"}'}, "send a reference"),
        ({"type": ""}, "a type that is empty"),
        ({"max_attempts": 2**31}, "beyond 32 bits"),
    ],
)
def test_a_row_that_fits_no_envelope_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(EnvelopeError, match=words):
        encode(row(**changes))


def test_the_largest_input_fits() -> None:
    text = '{"a":"' + "x" * (profile.LARGEST - 8) + '"}'

    assert decode(encode(row(input=text, type="ü" * 200))).body == json.loads(text)


# Read

BROKEN: list[tuple[str, object]] = [
    ("header", ...),
    ("body", ...),
    ("tracing", ...),
    *[(f"header.{name}", ...) for name in EXAMPLE["header"]],
    *[(f"tracing.{name}", ...) for name in EXAMPLE["tracing"]],
    ("more", 1),
    ("header.more", 1),
    ("tracing.more", 1),
    ("header", []),
    ("body", []),
    ("body", None),
    ("body", "{}"),
    ("tracing", None),
    ("header.job_id", "no uuid"),
    ("header.job_id", 7),
    ("header.job_id", "0af7651916cd43dd8448eb211c80319c"),
    ("header.type", ""),
    ("header.type", 1),
    ("header.type", "x" * 201),
    ("header.version", 1.0),
    ("header.version", None),
    ("header.created_at", "yesterday"),
    ("header.created_at", 1_735_041_600),
    ("header.created_at", "2024-12-24T12:00:00"),
    ("header.created_at", "2024-12-24 12:00:00Z"),
    ("header.created_at", "2024-12-24T12:00:00+00:00"),
    ("header.attempt", 0),
    ("header.attempt", -1),
    ("header.attempt", 1.5),
    ("header.attempt", "1"),
    ("header.attempt", True),
    ("header.attempt", None),
    ("header.attempt", 2**31),
    ("header.max_attempts", 0),
    ("header.max_attempts", 10**30),
    ("tracing.trace_id", "0" * 32),
    ("tracing.trace_id", "A" * 32),
    ("tracing.trace_id", "a" * 31),
    ("tracing.trace_id", "a" * 32 + "\n"),
    ("tracing.trace_id", 5),
    ("tracing.span_id", "0" * 16),
    ("tracing.span_id", "a" * 17),
    ("tracing.span_id", "a" * 16 + "\n"),
]


@pytest.mark.parametrize(("path", "value"), BROKEN, ids=lambda value: ascii(value)[:30])
def test_a_broken_field_is_refused_by_the_code_and_by_the_schema(path: str, value: object) -> None:
    payload = changed(path, value)

    with pytest.raises(EnvelopeError):
        decode(payload)
    assert not jsonschema_rs.is_valid(envelope.schema(), json.loads(payload), validate_formats=True)


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"", "not JSON"),
        (b"\xff\x00garbage", "not UTF-8"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"[" * 200_000, "nested deeper"),
        (b'{"a":' * 40_000, "nested deeper"),
        (b" " * (envelope.LARGEST + 1), "is the most"),
        (b'{"header": NaN}', "NaN"),
        (b'{"header": -Infinity}', "Infinity"),
        (b'{"header": ' + b"9" * 5_000 + b"}", "number that is too long"),
        (changed("header.version", "2.0"), "version '2.0', and this program reads 1.0"),
        (changed("header.attempt", 4), "attempt 4, and max_attempts is 3"),
        (changed("header.created_at", "2024-12-24T12:00:00+02:00"), "in UTC, with a Z"),
        (changed("header.type", "a\0b"), "control character"),
        (changed("body", {"a": "b\0"}), r"\$\.body\.a contains U\+0000"),
        (changed("body", {"a\0": 1}), r"U\+0000"),
        (changed("body", {"a": "\ud800"}), "surrogate"),
        (changed("body", {"a": 2**63}), "beyond 64 bits"),
        (changed("body", {"a": nested(70)}), "nested deeper"),
        (json.dumps(EXAMPLE).replace('"attempt": 1', '"attempt": 1, "attempt": 2').encode(), "'attempt' twice"),
        (json.dumps(EXAMPLE).replace('"body"', '"header": {}, "body"').encode(), "'header' twice"),
        (changed("body", {}).replace(b'"body": {}', b'"body": {"a": [{"b": 1, "b": 1}]}'), "'b' twice"),
    ],
    ids=range(23),
)
def test_a_message_that_is_no_envelope_is_refused_with_the_reason(payload: bytes, words: str) -> None:
    with pytest.raises(EnvelopeError, match=words):
        decode(payload)


def test_an_older_version_is_raised_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def raised(document: dict[str, Any]) -> dict[str, Any]:
        return {**document, "header": {**document["header"], "version": "1.0"}, "body": document["data"]} | {}

    def without_data(document: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in raised(document).items() if name != "data"}

    monkeypatch.setitem(envelope.UPCASTERS, "0.9", without_data)
    old = json.loads(changed("header.version", "0.9"))
    old["data"] = old.pop("body")

    assert decode(json.dumps(old).encode()).body == EXAMPLE["body"]

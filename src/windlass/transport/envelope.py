"""The envelope: what a message holds. It is validated where it is written and where it is read.

{"header": {job_id, type, version, created_at, attempt, max_attempts}, "body": {…}, "tracing": {trace_id, span_id}}

`version` is the version of the envelope itself. A new contract of a job is a new type, and no new version. The schema
is in docs/envelope.schema.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Annotated, Any
from uuid import UUID

import msgspec

from windlass.errors import EnvelopeError, InvalidInput
from windlass.model.delivery import OutboxRow
from windlass.names import LONGEST_NAME, name_problem
from windlass.payload import profile

VERSION = "1.0"
LARGEST = profile.LARGEST + 8 * 1024  # bytes: the largest input, and room for a header whose type has 200 characters
MOST_ATTEMPTS = 2**31 - 1  # what the column of the store holds
WRITTEN_AT = re.compile(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z$")
TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?", re.DOTALL)
NO_TRACE, NO_SPAN = "0" * 32, "0" * 16  # W3C: all zeros mean that there is none

UPCASTERS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""By an older version: what makes a document of the next version out of it. 1.0 is the first."""

Attempt = Annotated[int, msgspec.Meta(ge=1, le=MOST_ATTEMPTS)]


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which job, and which attempt of it."""

    job_id: UUID
    type: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_NAME)]
    version: Annotated[str, msgspec.Meta(pattern=rf"^{re.escape(VERSION)}$")]
    created_at: Annotated[datetime, msgspec.Meta(tz=True, extra_json_schema={"pattern": WRITTEN_AT.pattern})]
    attempt: Attempt  # that this delivery is for; the first is 1
    max_attempts: Attempt


class Tracing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The trace that the job belongs to, as in a W3C traceparent."""

    # max_length, because $ also matches before a line break at the end.
    trace_id: Annotated[str, msgspec.Meta(pattern="^(?!0{32}$)[0-9a-f]{32}$", max_length=32)]
    span_id: Annotated[str, msgspec.Meta(pattern="^(?!0{16}$)[0-9a-f]{16}$", max_length=16)]


class Envelope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One message. The store is the truth: a worker takes type and input from there, and compares the body."""

    header: Header
    body: dict[str, Any]
    tracing: Tracing


class _NamedHeader(msgspec.Struct, frozen=True):
    job_id: UUID


class _Named(msgspec.Struct, frozen=True):
    header: _NamedHeader


ENCODER = msgspec.json.Encoder()


def encode(row: OutboxRow) -> bytes:
    """The envelope of a row of the outbox; raises EnvelopeError. The input is JSON already and goes in as it is."""
    # A job that died before its first attempt has none; an operator's retry may go beyond the limit that the job had.
    attempt = max(row.attempt, 1)
    header = Header(
        job_id=row.job,
        type=row.type,
        version=VERSION,
        created_at=row.created_at.astimezone(UTC),
        attempt=attempt,
        max_attempts=max(row.max_attempts, attempt),
    )
    _check_header(header)
    body = row.input.encode(errors="surrogatepass")
    if len(body) > profile.LARGEST:
        raise EnvelopeError(
            f"the input of job {row.job} is {len(body):,} bytes, and {profile.LARGEST:,} is the most; store it "
            "elsewhere and send a reference"
        )
    if not (body.lstrip().startswith(b"{") and body.rstrip().endswith(b"}")):
        raise EnvelopeError(f"the input of job {row.job} is not a JSON object")
    return b"".join(
        (
            b'{"header":',
            ENCODER.encode(header),
            b',"body":',
            body,
            b',"tracing":',
            ENCODER.encode(_tracing(row, attempt)),
            b"}",
        )
    )


def decode(payload: bytes) -> Envelope:
    """The envelope in a message; raises EnvelopeError, which says what is wrong with it and shows no value of it."""
    document = _upcast(_parse(payload))
    try:
        envelope = msgspec.convert(document, Envelope)
        profile.check(envelope.body, path="$.body")
    except msgspec.ValidationError as problem:
        raise EnvelopeError(f"the message is no envelope: {problem}") from None
    except InvalidInput as problem:
        raise EnvelopeError(f"the message is no envelope: {problem}") from None
    _check_header(envelope.header)
    _check_texts(document["header"], envelope.header)
    return envelope


def job_of(payload: bytes) -> UUID | None:
    """The job that a message names, even where it is no valid envelope; None where it names none."""
    try:
        return msgspec.json.decode(payload, type=_Named).header.job_id
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def schema() -> dict[str, Any]:
    """The JSON Schema of the envelope; docs/envelope.schema.json holds it."""
    document = msgspec.json.schema(Envelope)
    title = {"title": f"Windlass envelope {VERSION}"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **title, **document}


def _parse(payload: bytes) -> dict[str, Any]:
    """The message as JSON. msgspec would be faster, and takes the last of two equal keys without a word: two readers of
    such a message could see two different jobs. Python's parser can be asked to look at each key."""
    if len(payload) > LARGEST:
        raise EnvelopeError(f"the message has {len(payload):,} bytes, and {LARGEST:,} is the most")
    try:
        document = json.loads(payload.decode(), object_pairs_hook=_object, parse_constant=_refuse_constant)
    except EnvelopeError:  # is a ValueError, too
        raise
    except UnicodeDecodeError:
        raise EnvelopeError("the message is not UTF-8") from None
    except RecursionError:
        raise EnvelopeError(f"the message {profile.TOO_DEEP}") from None
    except json.JSONDecodeError as problem:
        raise EnvelopeError(f"the message is not JSON: {problem}") from None
    except ValueError:  # an integer of more digits than Python reads
        raise EnvelopeError("the message has a number that is too long") from None
    if type(document) is not dict:
        raise EnvelopeError("the message is no envelope: it is not a JSON object")
    return document


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise EnvelopeError(f"the message has the key {twice[:80]!a} twice in one object")
    return found


def _refuse_constant(name: str) -> None:
    raise EnvelopeError(f"the message has {name}, which is not JSON")


def _upcast(document: dict[str, Any]) -> dict[str, Any]:
    header = document.get("header")
    version = header.get("version") if type(header) is dict else None
    while type(version) is str and version != VERSION:
        if version not in UPCASTERS:
            raise EnvelopeError(
                f"the envelope has the version {version[:40]!a}, and this program reads {VERSION}; a newer program "
                "wrote it: update the workers first, then what publishes"
            )
        document = UPCASTERS[version](document)
        version = document["header"]["version"]
    return document


def _check_header(header: Header) -> None:
    """What no type can say."""
    if header.attempt > header.max_attempts:
        raise EnvelopeError(f"the envelope is for attempt {header.attempt}, and max_attempts is {header.max_attempts}")
    if not 1 <= header.attempt <= header.max_attempts <= MOST_ATTEMPTS:
        raise EnvelopeError("the envelope has attempts beyond 32 bits")
    if problem := name_problem(header.type):
        raise EnvelopeError(f"the envelope has a type that {problem}")


def _check_texts(written: dict[str, Any], header: Header) -> None:
    """msgspec reads more forms of a time and of a UUID than the schema has: other readers would refuse them."""
    if not WRITTEN_AT.fullmatch(written["created_at"]):
        raise EnvelopeError("the envelope has a created_at unlike 2024-12-24T12:00:00Z; write it in UTC, with a Z")
    if written["job_id"].lower() != str(header.job_id):
        raise EnvelopeError("the envelope has a job_id without its hyphens")


def _tracing(row: OutboxRow, attempt: int) -> Tracing:
    """The caller's trace; without one, ids that every relay derives in the same way from the job and the attempt."""
    match = TRACEPARENT.fullmatch(row.trace) if row.trace else None
    if match and match[1] != NO_TRACE and match[2] != NO_SPAN:
        return Tracing(trace_id=match[1], span_id=match[2])
    span = blake2b(row.job.bytes + attempt.to_bytes(4), digest_size=8).hexdigest()
    # The job id of all zeros is a UUID, too.
    return Tracing(
        trace_id=row.job.hex if row.job.int else f"{1:032x}",
        span_id=span if span != NO_SPAN else f"{1:016x}",
    )

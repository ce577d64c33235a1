"""Answers: rows as JSON, and each error as `application/problem+json` with its status, its message and its place."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from windlass import errors

log = logging.getLogger("windlass")

encoder = msgspec.json.Encoder()

PROBLEM = "application/problem+json"
RETRY_AFTER = 2  # seconds: the store may answer again
HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}

STATUS: tuple[tuple[type[errors.WindlassError], int], ...] = (
    # The first class that fits decides.
    (errors.TokenRefused, 401),
    (errors.AccessDenied, 403),
    (errors.JobNotFound, 404),
    (errors.ScheduleNotFound, 404),
    (errors.UnknownLimit, 404),
    (errors.TokenNotFound, 404),
    (errors.IdempotencyConflict, 409),
    (errors.TokenExists, 409),
    (errors.TransitionRefused, 409),
    (errors.ValueRefused, 422),  # trying again cannot help
    (errors.StoreError, 503),
    (errors.BrokerError, 503),
    (errors.WindlassError, 422),
)


def answer(document: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer; ids, times and enums become text."""
    return Response(encoder.encode(document), status, {**HEADERS, **(headers or {})}, "application/json")


def answer_error(error: Exception) -> Response:
    """The answer to a request that raised this error."""
    if isinstance(error, HTTPException) and isinstance(error.__cause__, errors.RequestRefused):
        error = error.__cause__  # raised while FastAPI read the body
    if isinstance(error, RequestValidationError):
        return _problem(422, "InvalidRequest", _first_mistake(error), mistakes=_mistakes(error))
    if isinstance(error, HTTPException):
        status = 422 if error.status_code == 400 else error.status_code  # 400: FastAPI could not parse the body
        detail = "the body cannot be parsed as JSON" if error.status_code == 400 else str(error.detail)
        return _problem(status, "InvalidRequest", detail, error.headers)
    if isinstance(error, errors.RequestRefused):
        return _problem(error.status, "RequestRefused", str(error), _more_headers(error.status))
    status = next((code for kind, code in STATUS if isinstance(error, kind)), 500)
    if status == 500:
        return _problem(500, "InternalError", "the server failed; its log has the error")
    return Response(encoder.encode(problem_of(error)), status, {**HEADERS, **_more_headers(status)}, PROBLEM)


def problem_of(error: Exception) -> dict[str, Any]:
    """An error of Windlass as a document: its status, its class, its message, its place and what was meant."""
    status = next((code for kind, code in STATUS if isinstance(error, kind)), 500)
    document = {"status": status, "error": type(error).__name__, "detail": _message(error)}
    more = {name: getattr(error, name, None) for name in ("path", "position", "corrected")}
    return document | {name: value for name, value in more.items() if value is not None}


def _message(error: Exception) -> str:
    """What the caller reads. The text of a database may hold hosts, users and values: it goes to the log alone."""
    if isinstance(error, errors.BrokerError):
        log.warning("the HTTP API answers 503: %s", error)
        return (
            "the broker does not answer now; jobs are in the database and run; the server's log has the reason; "
            "look: windlass broker check"
        )
    if not isinstance(error, errors.StoreError) or isinstance(error, errors.ReadTimeout):
        return str(error)
    if isinstance(error, errors.ValueRefused):
        log.warning("the HTTP API answers 422: %s", error)
        return "the database refused a value of the request; nothing was written; the server's log has its message"
    log.warning("the HTTP API answers 503: %s", error)
    return (
        "the database does not answer now; nothing is known to be written; repeat the request, with its Idempotency-Key"
    )


def _more_headers(status: int) -> dict[str, str]:
    if status == 503:
        return {"retry-after": str(RETRY_AFTER)}
    return {"www-authenticate": "Bearer"} if status == 401 else {}


def _problem(status: int, error: str, detail: str, headers: Mapping[str, str] | None = None, **extra: Any) -> Response:
    document = {"status": status, "error": error, "detail": detail, **extra}
    return Response(encoder.encode(document), status, {**HEADERS, **(headers or {})}, PROBLEM)


def _mistakes(error: RequestValidationError) -> list[dict[str, str]]:
    return [{"path": _path(each["loc"]), "message": each["msg"]} for each in error.errors()[:20]]


def _first_mistake(error: RequestValidationError) -> str:
    first = _mistakes(error)[0]
    return f"{first['path']}: {first['message']}"


def _path(steps: Sequence[int | str]) -> str:
    """`$.jobs[3].type` in a body, `query.count` elsewhere."""
    where, *rest = steps
    begin = "$" if where == "body" else str(where)
    return begin + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in rest)

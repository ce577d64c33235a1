"""What the bodies of requests and answers share. Unknown fields of a request are refused."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

NAME = r"^[^\s\x00-\x1f\x7f-\x9f]([^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f])?$"
"""No control characters, and no white space at the ends, as `name_problem` has it."""
SPAN = r"^([0-9]{1,4}d)?([0-9]{1,4}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?([0-9]{1,6}ms)?$"
LONGEST_SPAN = 3_153_600_000  # seconds: a hundred years

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=NAME)]
Reason = Annotated[str, Field(min_length=1, max_length=1_000, pattern=NAME)]
SpanText = Annotated[str, Field(min_length=2, max_length=32, pattern=SPAN, examples=["30s", "10m", "1h30m"])]
Seconds = Annotated[float, Field(ge=0, le=LONGEST_SPAN, strict=True)]
Span = Annotated[SpanText | Seconds, Field(description="seconds, or text such as 30s, 10m, 1h30m")]


class Body(BaseModel):
    """The body of a request: a field that it does not know is an error."""

    model_config = ConfigDict(extra="forbid")


class Answer(BaseModel):
    """The body of an answer."""


class Problem(Answer):
    """An error: what happened, why, and what to do."""

    status: int
    error: str
    detail: str
    path: str | None = None
    position: int | None = None
    corrected: str | None = None
    mistakes: list[dict[str, str]] | None = None


class Changes(Answer):
    """Whether something changed; false: it was so already."""

    changed: bool


def both(*names: str) -> dict[str, Any]:
    """The JSON Schema of an object that has all of these fields, and none of them null."""
    return {"required": list(names), "properties": {name: {"not": {"type": "null"}} for name in names}}

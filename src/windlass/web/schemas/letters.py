"""The bodies of requests and answers about the broker's dead letters."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from windlass.web.schemas.base import Answer, Body

LetterId = Annotated[str, Field(min_length=8, max_length=300, pattern=r"^letter:[^\x00-\x1f\x7f-\x9f]+$")]


class LettersBody(Body):
    """Letters to change; with `dry_run` they are counted only."""

    ids: Annotated[list[LetterId], Field(min_length=1, max_length=1_000)]
    dry_run: Annotated[bool, Field(strict=True)] = False


class LetterDocument(Answer):
    """A message in the dead-letter queue. `state` is its job's; `gone`: there is no job; `unreadable`: no envelope."""

    id: str
    reason: str | None
    state: str
    type: str | None
    queue: str | None
    at: datetime | None
    job: UUID | None


class LetterDetails(LetterDocument):
    """A letter with its payload: the envelope, or the text of what is none."""

    payload: Any


class Letters(Answer):
    """The oldest letters. `broker`: whether one is set; `problem`: why they could not be read."""

    letters: list[LetterDocument]
    broker: bool
    problem: str | None


class RefusedLetter(Answer):
    """A letter that was not changed."""

    id: str
    reason: str


class LetterReport(Answer):
    """What was done; after a dry run, what was matched and would be refused."""

    verb: Literal["replay", "discard"]
    dry_run: bool
    matched: int
    changed: int
    delivered: int
    removed: int
    refused: list[RefusedLetter]
    problem: str | None

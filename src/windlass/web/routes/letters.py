"""The routes of the broker's dead letters. Ids are in queries and bodies: another program may have made one."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from windlass.model.state import Verb
from windlass.web.answers import answer
from windlass.web.routing import WITH_BODY, Entered, make_routes, problems
from windlass.web.schemas import letters as schemas

letters_router = make_routes("letters")


@letters_router.get("/letters", response_model=schemas.Letters, summary="List dead letters")
async def read_letters(visit: Entered, count: Annotated[int, Query(ge=1, le=1_000)] = 50) -> Response:
    """The oldest messages in the broker's dead-letter queue; copies of dead jobs have the state `dead`."""
    return answer(await visit.service.letters(visit.caller, count))


@letters_router.get(
    "/letters/one", response_model=schemas.LetterDetails, responses=problems(404), summary="Read a dead letter"
)
async def read_letter(visit: Entered, id: Annotated[str, Query(min_length=8, max_length=300)]) -> Response:
    """One message with its payload, in which secrets are hidden."""
    return answer(await visit.service.letter(visit.caller, id))


@letters_router.post(
    "/letters/replay", response_model=schemas.LetterReport, responses=problems(*WITH_BODY), summary="Replay letters"
)
async def replay_letters(body: schemas.LettersBody, visit: Entered) -> Response:
    """Starts dead jobs over, or delivers again those that can be claimed, and removes the letters."""
    return answer(await visit.service.change_letters(visit.caller, Verb.REPLAY, body.ids, dry_run=body.dry_run))


@letters_router.post(
    "/letters/discard", response_model=schemas.LetterReport, responses=problems(*WITH_BODY), summary="Discard letters"
)
async def discard_letters(body: schemas.LettersBody, visit: Entered) -> Response:
    """Removes letters; their jobs stay as they are."""
    return answer(await visit.service.change_letters(visit.caller, Verb.DISCARD, body.ids, dry_run=body.dry_run))

"""Which filters a caller may use: a list that is narrowed by a hidden value would tell the value."""

from __future__ import annotations

import re

from windlass.documents import Document
from windlass.errors import AccessDenied
from windlass.model.filter import Filter, Term, parse
from windlass.model.token import Role
from windlass.payload.redact import HIDDEN
from windlass.policy.failure import CRASHED, EXHAUSTED, PERMANENT
from windlass.policy.redaction import Redaction
from windlass.web.caller import Caller

PLAIN = frozenset({CRASHED, EXHAUSTED, PERMANENT})  # the engine's own reasons
GUESSED = ("error", "reason", "key")  # fields in whose texts a hidden value may be repeated


def checked_filter(redaction: Redaction, caller: Caller, filter: str) -> Filter:
    """A reader could guess a hidden value letter by letter: `input.password:h*`. Only admins may ask that."""
    parsed = parse(filter)
    term = None if caller.role is Role.ADMIN else redaction.refused_term(parsed)
    if term is not None:
        raise AccessDenied(f"{term.text} compares a hidden value, and only an admin may do that; leave it out")
    excludes = (term for term in _guessing(parsed) if term.negated)
    if caller.role is not Role.ADMIN and (left := next(excludes, None)) is not None:
        raise AccessDenied(f"{left.text} may exclude by a hidden value, and only an admin may do that; leave it out")
    return parsed


def guesses(caller: Caller, filter: Filter) -> bool:
    """Whether a caller who may reveal nothing filters by a text that may repeat a secret.

    A job that matches by that part only is left out. Also `next` would tell: it is that of the last job that is shown.
    """
    return caller.role is not Role.ADMIN and bool(_guessing(filter))


def _guessing(filter: Filter) -> list[Term]:
    """The terms that compare a text that may repeat a secret. The engine's own reasons repeat none."""

    def is_plain(term: Term) -> bool:
        return term.column == "reason" and all(
            len(value.pieces) == 1 and value.pieces[0] in PLAIN for value in term.values
        )

    return [term for term in filter.terms if term.column in GUESSED and not is_plain(term)]


def shows(job: Document, filter: Filter) -> bool:
    """Whether what the filter asks for is in what is shown of the job."""
    return all(_is_in(term, _shown_text(job, term.column)) for term in filter.terms if term.column in GUESSED)


def _shown_text(job: Document, column: str) -> str:
    value = job.get(column) or ""
    text = f"{value.get('type')}: {value.get('message')}" if isinstance(value, dict) else str(value)
    return text.replace(HIDDEN, "\0")  # its letters are not the job's


def _is_in(term: Term, text: str) -> bool:
    patterns = (".*".join(map(re.escape, value.pieces)) for value in term.values)
    return any(re.search(pattern, text, re.IGNORECASE | re.DOTALL) for pattern in patterns)

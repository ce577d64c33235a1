"""Which filters a caller may use: a list that is narrowed by a hidden value would tell the value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from windlass.documents import Document
from windlass.errors import AccessDenied
from windlass.model.filter import Filter, Kind, Term, parse
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
    excludes = (term for term in _guessing(parsed) if term.negated and term.kind is not Kind.JSON)
    if caller.role is not Role.ADMIN and (left := next(excludes, None)) is not None:
        raise AccessDenied(f"{left.text} may exclude by a hidden value, and only an admin may do that; leave it out")
    return parsed


def guesses(caller: Caller, filter: Filter) -> bool:
    """Whether a caller who may reveal nothing filters by a text that may repeat a secret.

    A job that matches by that part only is left out. Also `next` would tell: it is that of the last job that is shown.
    """
    return caller.role is not Role.ADMIN and bool(_guessing(filter))


def compares_documents(filter: Filter) -> bool:
    """Whether a job's input or output has to be read to tell what the job shows."""
    return any(term.kind is Kind.JSON for term in _guessing(filter))


def _guessing(filter: Filter) -> list[Term]:
    """The terms that compare a text that may be hidden or repeat a secret. The engine's own reasons and ranges of
    numbers are none."""

    def may_repeat(term: Term) -> bool:
        if term.kind is Kind.JSON:
            return term.comparison == "="
        plain = all(len(value.pieces) == 1 and value.pieces[0] in PLAIN for value in term.values)
        return term.column in GUESSED and not (term.column == "reason" and plain)

    return [term for term in filter.terms if may_repeat(term)]


def shows(job: Document, filter: Filter) -> bool:
    """Whether what the filter asks for is in what is shown of the job."""
    return all(
        not _is_hidden(job[term.column], term.path) if term.kind is Kind.JSON else _is_in(term, _shown_text(job, term))
        for term in _guessing(filter)
    )


def _is_hidden(shown: Any, path: Sequence[str]) -> bool:
    """Whether something is hidden at this place of an input or output. Where a name is hidden, nothing tells which."""
    for step in path:
        if isinstance(shown, dict):
            if step not in shown:
                return any(HIDDEN in name for name in shown)
            shown = shown[step]
        elif isinstance(shown, list) and step.isdecimal() and int(step) < len(shown):
            shown = shown[int(step)]
        else:
            break
    return HIDDEN in str(shown)


def _shown_text(job: Document, term: Term) -> str:
    value = job.get(term.column) or ""
    text = f"{value.get('type')}: {value.get('message')}" if isinstance(value, dict) else str(value)
    return text.replace(HIDDEN, "\0")  # its letters are not the job's


def _is_in(term: Term, text: str) -> bool:
    patterns = (".*".join(map(re.escape, value.pieces)) for value in term.values)
    return any(re.search(pattern, text, re.IGNORECASE | re.DOTALL) for pattern in patterns)

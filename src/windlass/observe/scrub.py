"""What may leave for a tracing backend or an error tracker: texts and inputs without secrets and personal data.

These are often machines of other companies. So more is hidden than in the HTTP API: e-mail addresses, the queries of
URLs, and values whose names tell that they are about a person. A hidden value is also hidden where a text repeats it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from windlass.model.job import Job
from windlass.policy.redaction import Redaction

PERSONAL = (
    *("email", "e mail", "mail", "phone", "mobile", "telephone", "fax", "user name", "username", "login", "nickname"),
    *("first name", "last name", "full name", "given name", "family name", "surname", "maiden name", "customer name"),
    *("address", "street", "postcode", "postal code", "zip", "city", "birth", "birthday", "dob", "gender"),
    *("iban", "bic", "passport", "tax id", "national id", "ip", "latitude", "longitude", "lat", "lon", "lng"),
)
"""Names of values about a person."""
LARGEST_INPUT = 64 * 1024  # characters that are searched: a megabyte would stop the worker's loop for too long
WITHHELD = "[not sent: the input is too large to be searched for secrets]"

QUERY = re.compile(r"""(?P<place>\b[A-Za-z][A-Za-z0-9+.-]{0,19}://[^\s?#"'<>]*)[?#][^\s"'<>]*""")
EMAIL = re.compile(r"(?<![\w.+%-])[\w.+%-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64})+")


class Scrubbed(msgspec.Struct, frozen=True):
    """A failure as it may leave."""

    message: str
    traceback: str | None
    input: Any


class Scrubber:
    """Hides what must not leave; `names` are those of the setting `redact`."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._redaction = Redaction((*names, *PERSONAL))

    def failure(self, job: Job, message: str | None, traceback: str | None) -> Scrubbed:
        """The error of a job's attempt, and the job's input."""
        hidden = self.about(job, {"input": job.arguments(), "message": message or "", "traceback": traceback})
        if hidden is None:
            return Scrubbed(WITHHELD, None, WITHHELD)
        return Scrubbed(hidden["message"], hidden["traceback"], hidden["input"])

    def about(self, job: Job, value: Any) -> Any:
        """A value that tells of a job, also without the hidden values of its input; None: the input is too large."""
        if len(job.input) > LARGEST_INPUT:
            return None
        hidden, _ = self._redaction.job({"input": job.arguments(), "error": value})
        return _without_queries(hidden["error"])

    def value(self, value: Any) -> Any:
        """Any JSON value: texts without secrets, and "[redacted]" below the names that tell of one."""
        return _without_queries(self._redaction.value(value))

    def text(self, text: str) -> str:
        return _strip(self._redaction.text(text))


def _without_queries(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_queries(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_queries(item) for item in value]
    return _strip(value) if isinstance(value, str) else value


def _strip(text: str) -> str:
    return EMAIL.sub("[email]", QUERY.sub(r"\g<place>?[removed]", text))

"""Two questions to Wikidata: which entities have a name (wbsearchentities), and what is known of them (wbgetentities).

The caller takes a token of the rate before each question.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any, NamedTuple

import httpx2

from windlass import Snooze

URL = "https://www.wikidata.org/w/api.php"
TOKEN = os.environ.get("LINKER_WIKIDATA_TOKEN", "")
CONTACT = os.environ.get("LINKER_CONTACT", "https://example.org/linker")  # Wikidata asks for one in the user agent
PER_SECOND = 50 if TOKEN else 5
CANDIDATES = 5
LEAST, MOST = 1.0, 3_600.0  # seconds that are believed of a Retry-After
GROWTH = 60.0  # seconds at most that repeated refusals add up to by themselves
BUSY = ("maxlag", "ratelimited")  # errors of an answer with status 200
BORN, DIED = "P569", "P570"
YEAR = re.compile(r"[+-]\d+")


class Busy(Exception):
    """Wikidata wants to be left alone for `wait` seconds."""

    def __init__(self, wait: float) -> None:
        super().__init__(f"Wikidata is busy for {wait:g} s")
        self.wait = wait


class Unreachable(Exception):
    """No answer, or none that can be used; it may be better the next time."""


class Refused(Exception):
    """Wikidata refuses the question, and would refuse it again."""


class Entity(NamedTuple):
    """What is compared of an entity."""

    id: str
    names: list[str]  # its label and its aliases
    description: str
    born: int | None  # years
    died: int | None


class Wikidata:
    """A client for all jobs of a process."""

    def __init__(self) -> None:
        self._url = os.environ.get("LINKER_WIKIDATA_URL", URL)
        fields = {"User-Agent": f"record_linker/1.0 ({CONTACT})"}
        if TOKEN:
            fields["Authorization"] = f"Bearer {TOKEN}"
        self._http = httpx2.AsyncClient(headers=fields, timeout=30)
        self._refusals = 0  # one after the other
        self._quiet_until = 0.0

    async def search(self, name: str) -> list[str]:
        """The ids of the entities with such a name, best first."""
        asked = {"search": name, "language": "en", "type": "item", "limit": str(CANDIDATES)}
        found = await self._ask("search", action="wbsearchentities", **asked)
        return [each["id"] for each in found]

    async def look_up(self, ids: list[str]) -> list[Entity]:
        """What is known of these entities."""
        asked = {"ids": "|".join(ids), "props": "labels|aliases|descriptions|claims", "languages": "en"}
        found = await self._ask("entities", action="wbgetentities", **asked)
        return [_read(id, found[id]) for id in ids if "missing" not in found.get(id, {"missing": ""})]

    async def _ask(self, part: str, **question: str) -> Any:
        if (left := self._quiet_until - time.monotonic()) > 0:
            raise Busy(left)
        try:
            response = await self._http.get(self._url, params={**question, "format": "json"})
        except httpx2.TransportError as error:
            raise Unreachable(f"{type(error).__name__}: {error}") from error
        if response.status_code == 429:
            raise self._busy(response)
        if response.status_code >= 400:
            kind = Unreachable if response.status_code >= 500 else Refused
            raise kind(f"Wikidata answered {response.status_code}: {response.text[:200]}")
        try:
            answer = response.json()
            problem = answer.get("error")
            if problem is None:
                if time.monotonic() >= self._quiet_until:
                    self._refusals = 0
                return answer[part]
            if problem["code"] in BUSY:
                raise self._busy(response)
            raise Refused(f"Wikidata refused the question: {problem['code']}: {problem.get('info')}")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise Unreachable(f"Wikidata did not answer in its format: {error!r}") from error

    def _busy(self, response: httpx2.Response) -> Busy:
        """A Retry-After may be missing, no time at all, or a lie: a second when a minute is meant, or ten years."""
        try:
            told = Snooze(response.headers.get("Retry-After", 0)).delay
        except ValueError:
            told = 0.0
        if (now := time.monotonic()) >= self._quiet_until:  # not those that were under way at the last refusal
            self._refusals += 1
        wait = min(max(told, min(LEAST * 2 ** (self._refusals - 1), GROWTH)), MOST)
        self._quiet_until = now + wait
        return Busy(wait)

    async def close(self) -> None:
        await self._http.aclose()


def _read(id: str, entity: dict[str, Any]) -> Entity:
    aliases = entity.get("aliases", {}).get("en", [])
    names = [each["value"] for each in (entity.get("labels", {}).get("en"), *aliases) if each]
    description = entity.get("descriptions", {}).get("en", {}).get("value", "")
    born, died = (_year(entity.get("claims", {}).get(property, [])) for property in (BORN, DIED))
    return Entity(id, names, description, born, died)


def _year(claims: list[Any]) -> int | None:
    """Of the first claim with a value: `+1815-12-10T00:00:00Z` is 1815."""
    for claim in claims:
        value = claim["mainsnak"].get("datavalue")  # none where the date is known to be unknown
        if value and (found := YEAR.match(value["value"]["time"])):
            return abs(int(found[0]))
    return None

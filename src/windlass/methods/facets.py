"""Facets of a filter and what could stand at its cursor: `app.facets("state:dead")`, `app.suggest("error:4")`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.blocking import blocking
from windlass.errors import FilterError
from windlass.model.rows import COUNTED
from windlass.model.state import State

if TYPE_CHECKING:
    from windlass.client import Client
    from windlass.config import Settings
    from windlass.model.filter import Filter
    from windlass.model.reports.overview import Facets, Suggestion
    from windlass.store.protocol import Store

SHOWN = 50  # values of one field
COUNTED_FIELDS = ("state", "queue", "type", "tenant", "reason")


class FacetReads:
    """The methods of `Windlass` that help with a filter."""

    settings: Settings
    _client: Client
    _noun = "app"

    async def afacets(self, filter: str | Filter = "", *, tenant: str | None = None) -> Facets:
        """How many jobs that match have each state, queue, type and tenant: `app.facets("state:dead").queues`.

        At most 10,000 jobs are counted: `facets.count` 10,001 means that more match, and then the numbers are about
        10,001 of them. `facets.complete` is False then, and also where more jobs may match behind the rows that are
        read: 20,000 of each state, or the newest 20,000 of those that go on and of those that ended, where the filter
        names neither a state nor a queue. With `tenant=`, only jobs of that tenant are counted, whatever the filter
        says. Raises FilterError and ReadTimeout.
        """
        from windlass.methods.reads import checked_tenant, parsed

        wanted, only = parsed(filter), checked_tenant(tenant)
        return await self._client.aask(lambda store: read_facets(store, wanted, only))

    async def asuggest(self, text: str, cursor: int | None = None, *, tenant: str | None = None) -> list[Suggestion]:
        """What could stand at the cursor of a filter: `app.suggest("state:dead error:4")[0].text`.

        Without a colon, keys of the language with a word of help; behind one, the values of that key among the jobs
        that match the rest of the filter, with counts. `suggestion.text` replaces the characters from `start` to `end`.
        If the rest has a mistake, the only suggestion is of the kind `mistake`: its place is `start`, or its text is
        the corrected filter. Without `cursor`, it is at the end of the text.
        """
        from windlass.methods.reads import checked_tenant

        if not isinstance(text, str):
            raise FilterError(f"a filter is text such as 'state:dead queue:mail', not {type(text).__name__}")
        only = checked_tenant(tenant)
        place = len(text) if cursor is None else cursor
        return await self._client.aask(lambda store: read_suggestions(store, text, place, only, self.settings.redact))

    facets = blocking(afacets)
    suggest = blocking(asuggest)


async def read_facets(store: Store, filter: Filter, tenant: str | None) -> Facets:
    from windlass.model.reports.overview import Facets

    found = await store.facets(filter, COUNTED_FIELDS, tenant=tenant)
    count = sum(found["state"].values())
    shown = {field: dict(list(found[field].items())[:SHOWN]) for field in COUNTED_FIELDS}
    return Facets(
        count=count,
        states={state.value: shown["state"].get(state.value, 0) for state in State},
        queues=shown["queue"],
        types=shown["type"],
        tenants=shown["tenant"],
        reasons=shown["reason"],
        complete=count <= COUNTED and not await _may_be_cut(store, filter, tenant),
    )


async def _may_be_cut(store: Store, filter: Filter, tenant: str | None) -> bool:
    """Whether there may be more rows than are read: then further jobs of a type or tenant may be among the rest.

    What no index has is compared row by row. Without such terms, few rows mean that all were read.
    """
    from windlass.store.parts.search import entered, has_parts

    indexed = entered(filter, tenant)
    if len(indexed.terms) == len(filter.terms) and (tenant is None or not has_parts(filter, tenant)):
        return False
    found = await store.facets(indexed, ("state",), tenant=None if has_parts(filter, tenant) else tenant)
    return sum(found["state"].values()) > COUNTED


async def read_suggestions(
    store: Store, text: str, cursor: int, tenant: str | None, secrets: tuple[str, ...]
) -> list[Suggestion]:
    from windlass.model.filter import FIELDS, parse
    from windlass.policy.redaction import Redaction
    from windlass.policy.suggestions import suggest_keys, suggest_mistake, suggest_values, term_at
    from windlass.store.parts.search import FACETS

    typed = term_at(text, cursor)
    try:
        rest = parse(typed.rest)
        if typed.field is not None and typed.field.partition(".")[0] not in FIELDS:
            parse(text)  # it says which field was meant
    except FilterError as error:
        return [suggest_mistake(error, text, typed)]
    if typed.field is None:
        return suggest_keys(typed)
    field = {"status": "state"}.get(typed.field, typed.field)
    if field not in FACETS:
        return suggest_values(typed, {}) if field in FIELDS else []
    counts = (await store.facets(rest, ("state", field), tenant=tenant))[field]
    hide = Redaction(secrets).text
    return suggest_values(typed, {value: count for value, count in counts.items() if hide(value) == value})

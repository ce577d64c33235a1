"""One request for each operation of the OpenAPI document. A route without one fails the stories that walk them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx2 as httpx

from .rig import API, Served

NEW = {"type": "send", "input": {"to": "ann"}}
MAIL = {"kind": "queue", "name": "mail"}
NIGHTLY = {"name": "nightly"}

SAMPLES: dict[str, dict[str, Any]] = {
    "POST /session": {"json": {"token": "wl_unknown"}},
    "DELETE /session": {},
    "GET /session": {},
    "POST /jobs": {"json": NEW},
    "POST /jobs/batch": {"json": {"jobs": [NEW]}},
    "POST /jobs/bulk": {"json": {"verb": "cancel", "filter": "state:queued"}},
    "POST /bulk": {"json": {"verb": "cancel", "filter": "state:queued"}},
    "GET /bulk": {},
    "GET /bulk/{id}": {},
    "POST /bulk/{id}/stop": {},
    "GET /jobs": {},
    "GET /jobs/{id}": {},
    "GET /jobs/{id}/details": {},
    "GET /jobs/{id}/result": {},
    "GET /jobs/{id}/events": {},
    "POST /jobs/{id}/reveal": {},
    "POST /jobs/{id}/cancel": {},
    "POST /jobs/{id}/retry": {},
    "POST /jobs/{id}/replay": {},
    "POST /jobs/{id}/resume": {},
    "POST /jobs/{id}/discard": {},
    "POST /jobs/{id}/rerun": {"json": {"input": {"to": "eve"}}},
    "POST /jobs/{id}/signal": {"json": {"name": "answer", "value": 1}},
    "GET /jobs/{id}/story": {},
    "POST /jobs/{id}/dry-run": {"json": {"input": {"to": "eve"}}},
    "GET /stream": {"params": {"list": "jobs"}},
    "GET /lists": {"params": {"list": "jobs"}},
    "GET /health": {},
    "GET /overview": {},
    "GET /facets": {},
    "GET /suggestions": {"params": {"text": "state:"}},
    "GET /errors": {},
    "GET /phases": {},
    "GET /counts": {},
    "GET /queues": {},
    "GET /figures": {},
    "GET /depths": {},
    "GET /workers": {},
    "GET /types": {},
    "GET /audit": {},
    "GET /letters": {},
    "GET /letters/one": {"params": {"id": "letter:1-0"}},
    "POST /letters/replay": {"json": {"ids": ["letter:1-0"]}},
    "POST /letters/discard": {"json": {"ids": ["letter:1-0"]}},
    "GET /gates": {},
    "POST /gates/pause": {"json": MAIL},
    "POST /gates/resume": {"json": MAIL},
    "GET /limits": {},
    "GET /limits/use": {"params": {"key": "host"}},
    "POST /limits/hold": {"json": {"key": "host", "seconds": 5}},
    "POST /limits/release": {"json": {"key": "host"}},
    "GET /budgets": {},
    "PUT /budgets": {"json": {**MAIL, "cents": 5, "per": "day"}},
    "DELETE /budgets": {"params": MAIL},
    "GET /tenants": {},
    "PUT /tenants/weight": {"json": {"tenant": "a", "weight": 2}},
    "GET /schedules": {},
    "GET /schedules/ticks": {"params": NIGHTLY},
    "POST /schedules/pause": {"json": NIGHTLY},
    "POST /schedules/resume": {"json": NIGHTLY},
    "POST /schedules/edit": {"json": {**NIGHTLY, "cron": "0 4 * * *"}},
    "POST /schedules/reset": {"json": NIGHTLY},
    "POST /schedules/fire": {"json": NIGHTLY},
    "POST /schedules/forget": {"json": NIGHTLY},
    "GET /tokens": {},
    "POST /tokens": {"json": {"name": "new", "role": "viewer"}},
    "POST /tokens/revoke": {"json": {"token": "new"}},
}


@dataclass
class Reply:
    """An answer, and the beginning of a stream."""

    status: int
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


found: dict[str, Any] = {}  # by the first story that asks: a server takes 0.4 s to write the document, and all the same


async def operations(served: Served) -> dict[str, Any]:
    """Every operation that the OpenAPI document names, and what it says about it: `GET /jobs/{id}`."""
    if not found:
        document = (await served.client().get("/openapi.json")).json()
        for path, item in document["paths"].items():
            found.update({f"{how.upper()} {path.removeprefix(API)}": about for how, about in item.items()})
    assert sorted(found) == sorted(SAMPLES), "a route has no sample in tests/web/samples.py"
    return found


def text_parameters(about: dict[str, Any]) -> list[str]:
    """The parameters in the query of an operation that take any text."""
    named = {each["name"]: each["schema"] for each in about.get("parameters", []) if each["in"] == "query"}
    return [name for name, schema in named.items() if takes_text(schema)]


def takes_text(schema: dict[str, Any]) -> bool:
    return any(each.get("type") == "string" and "enum" not in each for each in schema.get("anyOf", [schema]))


async def call(client: httpx.AsyncClient, operation: str, id: UUID | str = "", **params: str) -> Reply:
    """Send the sample of an operation, with further parameters. Of a stream, the first event is read."""
    method, path = operation.split(" ")
    sample = SAMPLES[operation]
    sent = {**sample, "params": {**sample.get("params", {}), **params}}
    async with client.stream(method, path.replace("{id}", str(id)), **sent) as answer:
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            await answer.aread()
            return Reply(answer.status_code, answer.text)
        text = ""
        async for chunk in answer.aiter_text():
            text += chunk
            if "\n\n" in text and "event:" in text:
                break
        return Reply(answer.status_code, text)

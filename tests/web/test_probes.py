"""`/metrics`, `/healthz` and `/readyz` of the web server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2 as httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from windlass import Windlass
from windlass.errors import ConfigError
from windlass.web.service import scrapes

from .rig import CANARY, NO_TLS, PATIENCE, Served


async def get(served: Served, path: str, token: str | None = None) -> httpx.Response:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=served.origin, headers=headers, timeout=PATIENCE, verify=NO_TLS) as client:
        return await client.get(path)


async def test_metrics_tell_what_the_store_knows_to_a_caller_with_a_token(served: Served, app: Windlass) -> None:
    token = await served.token("viewer")

    refused, answer = await get(served, "/metrics"), await get(served, "/metrics", token)

    assert refused.status_code == 401
    assert answer.status_code == 200
    assert CANARY not in answer.text
    names = {family.name for family in text_string_to_metric_families(answer.text)}
    assert {"windlass_store_jobs", "windlass_store_workers", "windlass_store_oldest_due_seconds"} <= names
    assert ("windlass_store_oldest_snapshot_seconds" in names) == app.settings.url.startswith("postgres")


async def test_a_token_of_one_tenant_reads_no_metrics(served: Served) -> None:
    token = await served.token("viewer", tenant="acme")

    assert (await get(served, "/metrics", token)).status_code == 403


async def test_metrics_count_the_jobs_and_one_read_serves_all_scrapes(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, reads = await served.token("operator"), []
    client = served.client(token)
    for n in range(3):
        assert (await client.post("/jobs", json={"type": "send", "input": {"to": f"a{n}"}})).status_code == 202
    read = scrapes.read_store

    async def counted(store: object) -> object:
        reads.append(1)
        return await read(store)  # type: ignore[arg-type]

    monkeypatch.setattr(scrapes, "read_store", counted)
    answers = [(await get(served, "/metrics", token)).text for _ in range(5)]

    assert 'windlass_store_jobs{queue="mail",state="queued"} 3.0' in answers[-1]
    assert 'windlass_store_queue_workers{queue="mail"} 0.0' in answers[-1]
    assert len(reads) == 1


class SlowBroker:
    """Accepts a connection and counts its dead letters, and never tells the depths of queues."""

    async def count_dead_letters(self) -> int:
        return 2

    async def depths(self, queues: object) -> object:
        return await asyncio.Event().wait()


async def test_metrics_tell_a_slow_broker_from_one_whose_client_is_missing(
    served: Served, app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, installed = await served.token("viewer"), False
    app.settings = app.settings.with_(broker="redis://127.0.0.1:1/0")

    @asynccontextmanager
    async def opened(address: str) -> AsyncIterator[SlowBroker]:
        if not installed:
            raise ConfigError("install windlass[redis]")
        yield SlowBroker()

    monkeypatch.setattr("windlass.methods.broker.open_broker", opened)
    monkeypatch.setattr(scrapes, "WITHIN", 0.05)
    monkeypatch.setattr(scrapes, "READ_FOR", -1.0)

    missing = await get(served, "/metrics", token)
    installed = True
    slow = await get(served, "/metrics", token)

    assert (missing.status_code, "windlass_store_broker" in missing.text) == (200, False)
    assert "windlass_store_workers" in missing.text
    assert "windlass_store_broker_up 1.0" in slow.text
    assert "windlass_store_broker_dead_letters 2.0" in slow.text


async def test_probes_need_no_token_and_name_no_address(
    served: Served, app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ((await get(served, "/healthz")).status_code, (await get(served, "/readyz")).text) == (200, "ready\n")

    async def away(question: object) -> None:
        raise TimeoutError(app.settings.url)

    monkeypatch.setattr(app._client, "aask", away)
    monkeypatch.setattr(scrapes, "ANSWERED_FOR", -1.0)
    unready = await get(served, "/readyz")

    assert (unready.status_code, unready.text) == (503, "not ready: the store does not answer (TimeoutError)\n")
    assert (await get(served, "/healthz")).status_code == 200

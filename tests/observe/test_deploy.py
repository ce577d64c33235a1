"""The dashboard and the alert rules: each metric that they name is one that a worker or the web server has."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest

from windlass.model.admission import GateState
from windlass.model.figures import FigureRow, PhaseDepth
from windlass.model.processors import PoolReport
from windlass.model.rows import QueueRow
from windlass.observe.endpoint import WorkerNow
from windlass.observe.metrics import MetricsSubscriber, Series
from windlass.observe.store_metrics import BrokerQueue, StoreNow, make_registry

DEPLOY = Path(__file__).parents[2] / "deploy"
NAME = re.compile(r"\b((?:windlass|process)_\w+)\b")


def exposition() -> set[str]:
    """The names of all samples that there can be."""
    metrics = MetricsSubscriber(lambda: WorkerNow(pools=[PoolReport(phase="default")]))
    metrics._series["q", "t", "", "q"] = series = Series()
    series.outcomes["succeeded"] = 1
    now = datetime(2026, 1, 1, tzinfo=UTC)
    queue = QueueRow(queue="q", queued=1, running=0, failed=0, waiting=0, dead=0, lag=1.0, gate=GateState.OPEN)
    figure = FigureRow(
        at=now,
        queue="q",
        phase="q",
        succeeded=1,
        advanced=1,
        failed=1,
        dead=1,
        cancelled=1,
        run_seconds=1,
        wait_seconds=1,
    )
    phase = PhaseDepth(pipeline=None, phase="q", rank=0, due=1, running=0, counted=10)
    store = StoreNow(
        queues=[queue],
        phases=[phase],
        last_hour=[figure],
        last_minute=[figure],
        oldest_snapshot=1.0,
        outbox_lag=0.0,
        broker_up=True,
        broker_queues=[BrokerQueue("q", 1)],
    )
    text = (generate_latest(metrics.registry) + generate_latest(make_registry(store))).decode()
    declared = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    return declared | {line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")}


def panels() -> list[tuple[str, str]]:
    board = json.loads((DEPLOY / "grafana" / "windlass.json").read_text())
    return [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel["targets"]]


def rules() -> list[dict[str, Any]]:
    found = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    return [rule for group in found["groups"] for rule in group["rules"]]


@pytest.mark.parametrize(("title", "query"), [*panels(), *((rule["alert"], rule["expr"]) for rule in rules())])
def test_each_query_names_metrics_that_exist(title: str, query: str) -> None:
    named = set(NAME.findall(query))

    assert named
    assert named <= exposition()
    assert query.count("(") == query.count(")")


def test_each_alert_says_what_to_do() -> None:
    assert all(rule["annotations"]["summary"] and rule["labels"]["severity"] for rule in rules())
    assert len({rule["alert"] for rule in rules()}) == len(rules())

"""The dashboard's queries and the alert rules in a real Prometheus, which scrapes a real worker and a web server."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.brokers import private_part
from engine.rig import PATIENCE, ended
from servers import postgres_database
from web.rig import serving
from windlass import Windlass, fixed
from with_prometheus import Prometheus, promtool

from .tracing_rig import make_app

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "alerts.yml"
SELECTOR = re.compile(r"\bwindlass_\w+(?:\{[^}]*\})?")

CONFIGURATION = """
global: {{scrape_interval: 500ms, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: windlass-worker
    static_configs: [{{targets: ["127.0.0.1:{worker}"]}}]
  - job_name: windlass-web
    static_configs: [{{targets: ["127.0.0.1:{web}"]}}]
"""


def panels() -> list[tuple[str, str]]:
    board = json.loads((DEPLOY / "grafana" / "windlass.json").read_text())
    return [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel["targets"]]


def rules() -> list[dict[str, Any]]:
    found = yaml.safe_load(RULES.read_text())
    return [rule for group in found["groups"] for rule in group["rules"]]


def declare(app: Windlass) -> Any:
    @app.job(queue="mail", max_attempts=2, retry=fixed("10ms"))
    async def send(n: int) -> int:
        if n % 2:
            raise ValueError("no")
        return n

    return send


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.redis
async def test_each_query_and_each_rule_has_samples_in_prometheus(tmp_path: Path) -> None:
    """Given a worker that runs, fails and retries jobs, when Prometheus scrapes it, then no panel is empty."""
    with postgres_database() as database:
        async with private_part("redis") as part:
            app = make_app(database.url, broker=part.url, metrics_port=0)
            send = declare(app)
            worker = app.worker(queues=["mail"])
            async with worker, serving(app, local=True) as served:
                assert worker.observed is not None
                configuration = CONFIGURATION.format(rules=RULES, worker=worker.observed.port, web=served.port)
                server = await asyncio.to_thread(Prometheus(tmp_path, configuration).__enter__)
                try:
                    # A rate needs two scrapes of a series: jobs end before the first one and after it.
                    await run_jobs([await send.aenqueue(n) for n in range(4)])
                    assert await asyncio.to_thread(server.wait_for, "windlass_retries_total > 0", within=PATIENCE)
                    await run_jobs([await send.aenqueue(n) for n in range(4)])
                    await asyncio.to_thread(look_at_all, server)
                finally:
                    await asyncio.to_thread(server.__exit__)
            await app.aclose()


async def run_jobs(jobs: Sequence[Any]) -> None:
    for job in jobs:
        await ended(job)


def look_at_all(server: Prometheus) -> None:
    # A ratio is NaN before anything happened, and NaN is not above -1.
    empty = [title for title, query in panels() if not server.wait_for(f"({query}) > -1", within=PATIENCE)]
    assert empty == []
    named = {selector for rule in rules() for selector in SELECTOR.findall(rule["expr"])}
    assert [selector for selector in named if not server.wait_for(selector, within=PATIENCE)] == []
    loaded = [rule for group in server.get("rules")["groups"] for rule in group["rules"]]
    assert {rule["name"] for rule in loaded} == {rule["alert"] for rule in rules()}
    assert [rule["lastError"] for rule in loaded if rule.get("lastError")] == []


def test_promtool_finds_no_fault_in_the_rules() -> None:
    checked = promtool("check", "rules", str(RULES))

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(rules())} rules found" in checked.stdout


def test_each_alert_says_what_to_do() -> None:
    assert all(rule["annotations"]["summary"] and rule["labels"]["severity"] for rule in rules())
    assert len({rule["alert"] for rule in rules()}) == len(rules())


WELL = {
    'windlass_store_jobs{queue="q", state="queued"}': "5+0x60",
    'windlass_store_queue_workers{queue="q"}': "1+0x60",
    'windlass_store_queue_closed{queue="q"}': "0+0x60",
    'windlass_store_oldest_due_seconds{queue="q"}': "3+0x60",
    'windlass_attempts_total{queue="q", outcome="succeeded"}': "0+100x60",
    'windlass_attempts_total{queue="q", outcome="dead"}': "0+1x60",
    "windlass_worker_deaths_total": "1+0x60",
    "windlass_lease_losses_total": "0+0x60",
    "windlass_ready": "1+0x60",
    "windlass_loop_delay_seconds": "0.01+0x60",
    "windlass_store_oldest_snapshot_seconds": "20+0x60",
    "windlass_log_records_lost_total": "0+0x60",
    "windlass_subscriber_failures_total": "0+0x60",
    "windlass_store_broker_up": "1+0x60",
    "windlass_store_outbox_lag_seconds": "0+0x60",
    "windlass_store_broker_dead_letters": "0+0x60",
}
"""A minute per step, for an hour, in which nothing is wrong."""
AILMENTS = {
    "WindlassQueueWithoutWorker": {'windlass_store_queue_workers{queue="q"}': "0+0x60"},
    "WindlassQueueLate": {'windlass_store_oldest_due_seconds{queue="q"}': "0+60x60"},
    "WindlassDepthGrows": {'windlass_store_jobs{queue="q", state="queued"}': "100+100x60"},
    "WindlassJobsDie": {'windlass_attempts_total{queue="q", outcome="dead"}': "0+10x60"},
    "WindlassWorkersDie": {"windlass_worker_deaths_total": "0+1x60"},
    "WindlassLeasesLost": {"windlass_lease_losses_total": "0+0x55 1+0x5"},
    "WindlassWorkerNotReady": {"windlass_ready": "1+0x50 0+0x10"},
    "WindlassLoopDelayed": {"windlass_loop_delay_seconds": "2+0x60"},
    "WindlassOldSnapshot": {"windlass_store_oldest_snapshot_seconds": "0+60x60"},
    "WindlassLossOfLogs": {"windlass_log_records_lost_total": "0+1x60"},
    "WindlassBrokerAway": {"windlass_store_broker_up": "0+0x60"},
    "WindlassOutboxLate": {"windlass_store_outbox_lag_seconds": "0+60x60"},
    "WindlassDeadLetters": {"windlass_store_broker_dead_letters": "1+0x60"},
}


def test_each_alert_fires_at_its_ailment_and_none_at_another(tmp_path: Path) -> None:
    """Given an hour that is well but for one thing, when the rules are evaluated, then just its alert fires."""
    assert AILMENTS.keys() == {rule["alert"] for rule in rules()}
    stories: list[tuple[str | None, dict[str, str]]] = [(None, {}), *AILMENTS.items()]
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in (WELL | planted).items()],
            "promql_expr_test": [
                {
                    "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                    "eval_time": "59m",
                    "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if alert else [],
                }
            ],
        }
        for alert, planted in stories
    ]
    file = tmp_path / "alerts_test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))

    tested = promtool("test", "rules", str(file))

    assert tested.returncode == 0, tested.stdout + tested.stderr

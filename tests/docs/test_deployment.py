"""The files of deploy/ and docs/deployment.md say the same, and leave a worker the time that it needs to stop."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

from windlass.config import Settings

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_each_alert_has_a_row_in_the_runbook() -> None:
    runbook = (DEPLOY.parent / "docs/deployment.md").read_text().partition("## Runbook")[2]

    rules = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())["groups"]
    alerts = [rule["alert"] for group in rules for rule in group["rules"]]

    assert re.findall(r"^\| `(\w+)`", runbook, re.MULTILINE) == alerts


def test_every_place_gives_a_worker_longer_to_stop_than_its_grace() -> None:
    """Given the files of deploy/, then SIGKILL comes later than the end of the grace and what follows it."""
    pods = [*yaml.safe_load_all((DEPLOY / "kubernetes/windlass.yaml").read_text())]
    unit = (DEPLOY / "systemd/windlass-worker@.service").read_text()
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    fly = tomllib.loads((DEPLOY / "fly.toml").read_text())
    times = [
        next(pod for pod in pods if pod["metadata"]["name"] == "windlass-worker")["spec"]["template"]["spec"][
            "terminationGracePeriodSeconds"
        ],
        int(re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)[0]),
        int(compose["services"]["worker"]["stop_grace_period"].removesuffix("s")),
        int(fly["kill_timeout"].removesuffix("s")),
    ]
    dockerfile = (DEPLOY / "Dockerfile.worker").read_text()

    assert min(times) >= Settings().grace + 10
    assert dockerfile.endswith('CMD ["windlass", "worker", "app.worker", "-l", "INFO"]\n')
    assert compose["services"]["worker"]["restart"] == "unless-stopped"
    assert "Restart=always" in unit


def test_the_secret_has_each_key_that_a_manifest_reads() -> None:
    manifests = "".join((DEPLOY / "kubernetes" / name).read_text() for name in ("windlass.yaml", "migrate.yaml"))

    read = set(re.findall(r"name: windlass, key: (\w+)", manifests))

    assert read == set(re.findall(r"--from-literal=(\w+)=", manifests))
    assert read == {"owner", "url", "producer", "reader"}

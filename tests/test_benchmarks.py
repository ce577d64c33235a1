"""The benchmarks run: what they measure never decides whether a test passes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from servers import url_of

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
QUICK, LIMITS = BENCHMARKS / "quick.py", BENCHMARKS / "limits.py"

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


def environment() -> dict[str, str]:
    return {**os.environ, "WINDLASS_TEST_POSTGRES_URL": url_of("postgres")}


def test_the_quick_benchmark_measures_bare_sql_and_the_engine(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, str(QUICK), "--only", "throughput", "--jobs", "2000", "--json", str(report)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment())

    assert done.returncode == 0, done.stderr
    assert "share of jobs" in done.stdout
    assert "throughput" in json.loads(report.read_text())


def test_the_benchmark_of_limits_measures_both_sides(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, str(LIMITS), "--only", "noop", "--jobs", "1000", "--rounds", "1", "--json", str(report)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment())

    assert done.returncode == 0, done.stderr
    assert "share of plain" in done.stdout
    assert "noop" in json.loads(report.read_text())

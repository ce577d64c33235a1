"""What holds for every test: where its files go, what starts servers, which part it is in, what a failure shows."""

from __future__ import annotations

import os
import signal
import tempfile
from collections import defaultdict
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import hypothesis
import pytest

import evidence
import private_server
import servers
from windlass.testing.databases import drop_databases

ROOT = Path(__file__).parent
WORKER = "PYTEST_XDIST_WORKER"  # set in the worker processes of a run with -n

SLOW = {"dashboard", "docs", "engine", "faults", "integrations", "model", "runtime", "transport"}  # folders
SLOW_FIXTURES = {"windlass", "start", "terminals"}  # those of tests/cli that start processes
LONG = {"faults", "model"}  # folders
BROWSER = {"page", "phone"}  # fixtures
BROKERS = {"rabbitmq": {"rabbitmq", "amqp"}, "redis": {"redis", "redis_server"}}  # by mark; as POSTGRES
POSTGRES = {"postgres", "server_cli_store", "postgres_lab", "pg"}  # fixtures, and values of parameters
running = pytest.StashKey[ExitStack]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "postgres: needs the PostgreSQL server; set by the fixtures that a test asks for"
    )
    config.addinivalue_line("markers", "browser: needs Chromium; set by the fixtures that a test asks for")
    config.addinivalue_line("markers", "rabbitmq: needs the RabbitMQ server; set by the fixtures that a test asks for")
    config.addinivalue_line("markers", "redis: needs the Redis server; set by the fixtures that a test asks for")
    config.addinivalue_line("markers", "slow: starts processes or waits for real time; `make test-fast` leaves it out")
    config.addinivalue_line("markers", "long: grows with WINDLASS_TEST_SCALE; `make test-long` runs it large")
    hypothesis.settings.register_profile("windlass", deadline=None)  # on a busy machine an example may take long
    hypothesis.settings.load_profile("windlass")
    hear_ctrl_c()
    config.stash[running] = stack = ExitStack()
    if WORKER not in os.environ:
        directory = stack.enter_context(private_server.private_directory(None, memory=True))
        directory.chmod(0o711)  # the server's account passes through
        os.environ["TMPDIR"] = str(directory)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or each process that a test starts compiles the package again
        tempfile.tempdir = None  # what it found before
        stack.callback(servers.Servers(directory).stop)
    stack.callback(drop_databases)


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[running].close()


def hear_ctrl_c() -> None:
    """A script that starts a run in the background lets it ignore SIGINT, and every process that a test starts inherits
    that: a test of Ctrl-C would wait for ever."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# Parts


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        asked = asks_for(item)
        if not POSTGRES.isdisjoint(asked):
            item.add_marker("postgres")
        for mark, names in BROKERS.items():
            if not names.isdisjoint(asked):
                item.add_marker(mark)
        if not BROWSER.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("browser")
        folder = item.path.relative_to(ROOT).parts[0]
        if folder in SLOW or not SLOW_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("slow")
        if folder in LONG:
            item.add_marker("long")


def asks_for(item: pytest.Item) -> set[str]:
    """Its fixtures, and the texts among the values of its parameters."""
    names = getattr(item, "fixturenames", ())
    chosen = getattr(getattr(item, "callspec", None), "params", {}).values()
    return {*names, *(value for value in chosen if isinstance(value, str))}


# Results


def pytest_runtest_setup() -> None:
    evidence.event_sources.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections += evidence.of(item)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How long each folder took, in seconds of one process."""
    spent: defaultdict[str, float] = defaultdict(float)
    tests: defaultdict[str, int] = defaultdict(int)
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        if isinstance(report, pytest.TestReport):
            parts = Path(report.nodeid.partition("::")[0]).parts[:-1]
            spent["/".join(parts)] += report.duration
            tests["/".join(parts)] += report.when == "call"
    terminalreporter.section("time per folder")
    for folder in sorted(spent, key=lambda folder: -spent[folder]):
        terminalreporter.line(f"{spent[folder]:8.1f} s  {tests[folder]:5} tests  {folder}")

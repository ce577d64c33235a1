"""A private Prometheus, and its promtool, for the tests of metrics, alert rules and the Grafana dashboard."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from private_server import (
    STOP_LIMIT,
    UnavailableError,
    free_port,
    install_package,
    spawn,
    wait_until_ready,
)

START_LIMIT = 60.0  # seconds until it must answer
POLL = 0.1  # seconds between two looks at a query that has no answer yet


def find_program(name: str) -> str:
    """The path of `prometheus` or `promtool`; Debian's package is installed where it is missing."""
    if shutil.which(name) is None:
        install_package("prometheus", "Prometheus", "the tests of metrics need it")
    if (path := shutil.which(name)) is None:
        raise UnavailableError(f"The package prometheus is installed, but it contains no {name}.")
    return path


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run promtool to its end."""
    return subprocess.run([find_program("promtool"), *arguments], capture_output=True, text=True, check=False)


class Prometheus:
    """A server with a configuration: `with Prometheus(directory, text) as server`, then `server.query(…)`."""

    def __init__(self, directory: Path, configuration: str) -> None:
        self._directory = directory
        self._log = directory / "log"
        self.url = f"http://127.0.0.1:{free_port()}"
        (directory / "prometheus.yml").write_text(configuration)

    def __enter__(self) -> Prometheus:
        command = [
            find_program("prometheus"),
            f"--config.file={self._directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._directory / 'data'}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
        ]
        with self._log.open("ab") as log:
            self._process = spawn(
                command,
                env=os.environ,
                stdin=subprocess.DEVNULL,
                output=log,
                death_signal=signal.SIGKILL,
                own_session=True,
            )
        try:
            wait_until_ready(self._answers, self._process, limit=START_LIMIT, log=self._log)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its HTTP API; an error of a query raises."""
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(address, timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an expression, now."""
        return list(self.get("query", query=expression)["result"])

    def wait_for(self, expression: str, *, within: float) -> list[dict[str, Any]]:
        """The samples of an expression, as soon as there are any; none after so many seconds."""
        ends = time.monotonic() + within
        while not (found := self.query(expression)) and time.monotonic() < ends:
            time.sleep(POLL)
        return found

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

"""examples/demo as `make demo` runs it: its account holds, it notices when it does not, and Ctrl-C leaves nothing."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest

from .conftest import EXAMPLES

PATIENCE = 240.0  # seconds until a story gives up
ANSWERS = {"/imports": {"id": "1"}, "/links": {"links": [], "next": None}}


class Demo:
    """`python examples/demo/demo.py` with its own folder for temporary files."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._folder = folder
        self._output = folder / "output"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")}
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(EXAMPLES / "demo" / "demo.py"), *arguments],
                env={**environment, "TMPDIR": str(folder), "COLUMNS": "160"},
                stdout=output,
                stderr=output,
            )

    def expect(self, text: str) -> None:
        end = time.monotonic() + PATIENCE
        while text not in self.said():
            assert self._process.poll() is None, self.said()
            assert time.monotonic() < end, self.said()
            time.sleep(0.1)

    def said(self) -> str:
        return self._output.read_text()

    def press_ctrl_c(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def wait(self) -> int:
        return self._process.wait(timeout=PATIENCE)

    def left(self) -> list[str]:
        """Files that it left, and processes that still have its folder in their environment."""
        files = [path.name for path in self._folder.iterdir() if path != self._output]
        return files + [line for line in processes() if str(self._folder) in line]


def processes() -> list[str]:
    found = []
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            found.append(place.read_text(errors="replace"))
        except OSError:  # it has ended, or is another user's
            continue
    return [text for text in found if f"PYTEST_XDIST_WORKER={os.environ.get('PYTEST_XDIST_WORKER', '')}" in text]


def test_one_turn_ends_by_itself_and_its_account_holds(tmp_path: Path) -> None:
    demo = Demo(tmp_path, "--once")
    code = demo.wait()

    assert code == 0, demo.said()
    assert "kill -9" in demo.said()
    assert ("✔" in demo.said(), "✖" in demo.said()) == (True, False)
    assert demo.left() == []


def test_ctrl_c_ends_every_process_and_leaves_no_file(tmp_path: Path) -> None:
    demo = Demo(tmp_path)
    demo.expect("kill -9")
    demo.press_ctrl_c()

    assert (demo.wait(), "Traceback" in demo.said(), demo.left()) == (0, False, []), demo.said()


async def test_the_account_does_not_hold_when_the_sites_say_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link without a title, three requests at a time, a page that was asked for too often, a refusal not listed."""
    for name in ("demo", "site_analyst", "record_linker", "atlas"):
        monkeypatch.syspath_prepend(EXAMPLES / name)
    sites, systems = importlib.import_module("sites"), importlib.import_module("systems")
    world = sites.Sites()
    world.log += [sites.Request("www.ropes1.example", "/1/1", 200, 1.0, 2.0)] * 22
    answers = httpx2.MockTransport(lambda request: httpx2.Response(200, json=ANSWERS.get(request.url.path, [])))
    async with httpx2.AsyncClient(base_url="http://library", transport=answers) as http:
        library = systems.LinkLibrary(http, world)
        await library.play(1)
        checks = await library.check()

    assert [check.holds for check in checks] == [False] * 4

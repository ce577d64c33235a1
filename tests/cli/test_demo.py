"""`windlass demo --once`: the whole engine, with a killed worker, on a laptop."""

from __future__ import annotations

import signal
from pathlib import Path

from .conftest import Start, Windlass


def test_it_ends_by_itself_with_every_check_passed(windlass: Windlass, here: Path) -> None:
    ended = windlass("demo", "--once", WINDLASS_URL="postgresql://nowhere/nothing", WINDLASS_MAX_CRASHES="1")

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "kill -9" in ended.stdout
    assert "35 jobs enqueued, 0 lost" in ended.stdout
    assert "the killed worker's voyage was rescued and arrived" in ended.stdout
    assert "FAILED" not in ended.stdout
    assert [file.name for file in here.iterdir()] == ["app.py"]


def test_ctrl_c_ends_it_with_a_summary_and_exit_0(start: Start) -> None:
    demo = start("demo")
    demo.expect("haul  +succeeded")

    demo.signal(signal.SIGINT)

    demo.expect(r"\d+ jobs enqueued, 0 lost")
    assert demo.wait() == 0

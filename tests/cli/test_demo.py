"""`windlass demo`: the whole engine, with a killed worker, on a laptop; live on a terminal, in lines elsewhere."""

from __future__ import annotations

import asyncio
import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from windlass.job import COLUMNS, Job, new_id
from windlass.runtime.pool import ProcessorState
from windlass.state import State
from windlass.store.protocol import QueueRow

from .conftest import PATIENCE, Start, Windlass

if TYPE_CHECKING:
    from windlass.cli.demo.scene import Scene

SHOW_CURSOR, HIDE_CURSOR = "\x1b[?25h", "\x1b[?25l"
ENTER_SCREEN, LEAVE_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """`windlass demo` with a terminal of a size, of its own."""

    def __init__(self, folder: Path, *arguments: str, columns: int, lines: int, **environment: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "windlass", "demo", *arguments],
            env={**kept, "TERM": "xterm-256color", "TMPDIR": str(folder), **environment},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0) and None,
        )
        os.close(theirs)
        self.shown = ""

    def expect(self, text: str) -> None:
        """Until the terminal has shown this."""
        deadline = time.monotonic() + PATIENCE
        while text not in CODES.sub("", self.shown):
            assert time.monotonic() < deadline, f"{text!r} was never shown:\n{CODES.sub('', self.shown)[-4000:]}"
            assert self._read(), f"it ended without {text!r}:\n{CODES.sub('', self.shown)[-4000:]}"

    def press_ctrl_c(self) -> None:
        os.write(self._ours, b"\x03")

    def wait(self) -> int:
        while self._read():
            pass
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def _read(self) -> bool:
        if not select.select([self._ours], [], [], PATIENCE)[0]:
            pytest.fail(f"nothing was shown for {PATIENCE:g} s")
        try:
            piece = os.read(self._ours, 65_536)
        except OSError:  # nobody has the other side open any more
            return False
        self.shown += piece.decode(errors="replace")
        return bool(piece)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


def processes_of(folder: Path) -> list[int]:
    """Processes that were started with this folder for temporary files, or with a file in it."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if os.fsencode(str(folder)) in environment.read_bytes():
                found.append(int(environment.parent.name))
        except OSError:
            pass
    return found


# The whole of it


def test_it_ends_by_itself_with_every_check_passed(windlass: Windlass, here: Path) -> None:
    ended = windlass("demo", "--once", WINDLASS_URL="postgresql://nowhere/nothing", WINDLASS_MAX_CRASHES="1")

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
    assert "kill -9" in ended.stdout
    assert re.search(r"its lease ran out: \d+ jobs? given back", ended.stdout)
    assert re.search(r"\d{3} jobs enqueued, 0 lost", ended.stdout)
    assert "the killed worker's render was rescued, ran again and succeeded" in ended.stdout
    assert "thumbnail of broken.raw is quarantined" in ended.stdout
    assert "FAILED" not in ended.stdout
    assert "\x1b" not in ended.stdout
    assert [file.name for file in here.iterdir()] == ["app.py"]


def test_on_a_terminal_it_is_a_live_screen_that_leaves_the_terminal_as_it_was(
    tmp_path: Path, terminals: list[Terminal]
) -> None:
    terminals.append(Terminal(tmp_path, "--once", columns=80, lines=24))

    assert terminals[0].wait() == 0

    shown = terminals[0].shown
    live, _, after = shown.rpartition(LEAVE_SCREEN)
    assert live.count(ENTER_SCREEN) == 1
    assert shown.rindex(SHOW_CURSOR) > shown.rindex(HIDE_CURSOR)
    for text in ("queues", "jobs/s", "worker 2", "mail-processor-1", "kill -9", ", killed", "given back", "error"):
        assert text in CODES.sub("", live)
    assert "0 lost" in CODES.sub("", after)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("columns", "lines", "environment"),
    [(79, 24, {}), (80, 23, {}), (80, 24, {"NO_COLOR": "1"}), (80, 24, {"TERM": "dumb"})],
)
def test_a_small_or_simple_terminal_gets_lines(
    tmp_path: Path, terminals: list[Terminal], columns: int, lines: int, environment: dict[str, str]
) -> None:
    terminals.append(Terminal(tmp_path, columns=columns, lines=lines, **environment))

    terminals[0].expect("newsletters wait in the store")
    terminals[0].press_ctrl_c()

    assert terminals[0].wait() == 0
    assert ENTER_SCREEN not in terminals[0].shown


# Ctrl-C


@pytest.mark.parametrize("moment", ["windlass demo", "workers are starting", "worker 1 is at work", "kill -9"])
def test_ctrl_c_ends_it_at_every_moment_and_leaves_nothing_behind(
    tmp_path: Path, terminals: list[Terminal], moment: str
) -> None:
    terminals.append(Terminal(tmp_path, columns=120, lines=40))
    terminals[0].expect(moment)
    assert terminals[0].process.pid in processes_of(tmp_path)

    terminals[0].press_ctrl_c()

    assert terminals[0].wait() == 0
    assert "Traceback" not in terminals[0].shown
    assert "0 lost" in CODES.sub("", terminals[0].shown.rpartition(LEAVE_SCREEN)[2])
    assert terminals[0].shown.endswith("\n")
    assert list(tmp_path.iterdir()) == []
    assert processes_of(tmp_path) == []


def test_ctrl_c_ends_the_lines_with_a_summary_and_exit_0(start: Start) -> None:
    demo = start("demo")
    demo.expect("newsletter  +succeeded")

    demo.signal(signal.SIGINT)

    demo.expect("Ctrl-C: stopping")
    demo.expect(r"\d+ jobs enqueued, 0 lost")
    assert demo.wait() == 0


def test_a_reader_who_leaves_ends_it_without_a_word(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-m", "windlass", "demo"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert demo.stdout is not None
    assert demo.stderr is not None
    demo.stdout.readline()

    demo.stdout.close()

    assert demo.stderr.read() == ""
    assert demo.wait(PATIENCE) == 0
    assert list(tmp_path.iterdir()) == []
    assert processes_of(tmp_path) == []


def test_a_ctrl_c_before_there_is_a_loop_is_remembered() -> None:
    from windlass.cli.demo.interrupts import SIGNALS, Interrupts

    before = {number: signal.getsignal(number) for number in SIGNALS}
    acted: list[int] = []

    async def begin(interrupts: Interrupts) -> None:
        interrupts.hand_to(acted.append)

    try:
        interrupts = Interrupts()
        interrupts.catch()
        signal.raise_signal(signal.SIGINT)
        asyncio.run(begin(interrupts))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

    assert acted == [signal.SIGINT]


# The screen


@pytest.fixture
def scene() -> Scene:
    from windlass.cli.demo.reports import Ended, Processors, Slot
    from windlass.cli.demo.scene import Scene

    scene = Scene(workers=2)
    scene.enqueued = 100
    row = QueueRow(queue="mail", queued=40, running=4, failed=1, waiting=0, dead=2, lag=None)
    scene.counted({State.SUCCEEDED: 53, State.DEAD: 2, State.RUNNING: 4, State.FAILED: 1, State.QUEUED: 40}, [row])
    job = "0" * 24 + "cafe1234"
    slots = [
        Slot("mail-processor-1", ProcessorState.BUSY, "newsletter", job, 0.2),
        Slot("shop-processor-1", ProcessorState.ERROR, "ask_partner", job, 1.0),
        Slot("shop-processor-2", ProcessorState.IDLE, None, None, 0.0),
    ]
    scene.hear(Processors(1, 4001, slots))
    scene.hear(Processors(2, 4002, slots))
    error = "ValueError: line 7 is no product"
    scene.hear(Ended(1, 0.0, job, "import_feed", "1 of 2", f"failed in 1ms: {error}", error, State.FAILED))
    return scene


def drawn(scene: Scene, columns: int, lines: int) -> list[str]:
    from windlass.cli.demo.screen import lay_out

    console = Console(width=columns, height=lines, file=io.StringIO(), color_system=None)
    with console.capture() as captured:
        console.print(lay_out(scene, columns, lines))
    return captured.get().splitlines()


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (120, 40), (200, 50), (81, 33), (300, 24)])
def test_everything_known_is_on_the_screen_in_every_size(scene: Scene, columns: int, lines: int) -> None:
    scene.tell("something happens " * 4)

    screen = drawn(scene, columns, lines)

    assert len(screen) == lines
    assert all(len(line) <= columns for line in screen)
    shown = "\n".join(screen)
    for text in ("55 of 100 jobs", "○40", "worker 2", "shop-processor-1", "newsletter", "error", "idle", "ValueError"):
        assert text in shown


@pytest.mark.parametrize(("columns", "lines"), [(20, 5), (1, 1), (79, 10)])
def test_a_terminal_that_is_made_too_small_meanwhile_breaks_nothing(scene: Scene, columns: int, lines: int) -> None:
    assert drawn(scene, columns, lines) is not None


def test_a_killed_worker_shows_what_it_held_until_another_process_reports(scene: Scene) -> None:
    from windlass.cli.demo.reports import Processors

    scene.killed(2)
    scene.hear(Processors(2, 4002, []))  # it was on its way when the worker died

    assert "pid 4002, killed" in "\n".join(drawn(scene, 80, 24))
    assert "✖ newsletter" in "\n".join(drawn(scene, 80, 24))

    scene.hear(Processors(2, 4003, []))

    assert "killed" not in "\n".join(drawn(scene, 80, 24)).replace("kill -9", "")
    assert scene.story[-1].words == "worker 2 is replaced by a new process, pid 4003"


def test_a_flood_of_successes_does_not_wash_a_failure_away(scene: Scene) -> None:
    from windlass.cli.demo.reports import Ended

    for _ in range(500):
        scene.hear(Ended(1, 0.0, "ab" * 16, "newsletter", "1 of 4", "succeeded in 9ms", None, State.SUCCEEDED))

    shown = "\n".join(drawn(scene, 80, 24))
    assert "500×  newsletter" in shown
    assert "failed (1 of 2): ValueError" in shown


# The check at the end


def test_a_job_that_is_lost_fails_the_check() -> None:
    from windlass.cli.demo.summary import Account, check

    account = Account(enqueued=3, counts={State.SUCCEEDED: 2}, cast=[], victims=frozenset(), complete=False)

    assert [(sentence.words, sentence.holds) for sentence in check(account)] == [("3 jobs enqueued, 1 lost", False)]


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def mail(type: str, *, created: float, started: float | None, status: State = State.SUCCEEDED) -> Job:
    """A job of the mail queue, with its times in seconds after noon."""
    begun = None if started is None else NOON + timedelta(seconds=started)
    columns = dict.fromkeys(COLUMNS) | {
        "id": new_id(),
        "type": type,
        "status": status,
        "input": "{}",
        "started_at": begun,
    }
    return Job(**columns | {"created_at": NOON + timedelta(seconds=created)})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cast", "told"),
    [
        # The newsletter of another round was done before the reset came: only the second one was overtaken.
        ([(0, 1, "newsletter"), (2, 9, "newsletter"), (3, 4, "password_reset")], [(1, True)]),
        ([(0, 5, "newsletter"), (3, 6, "password_reset")], [(0, False)]),
        ([(0, None, "newsletter"), (3, 4, "password_reset")], [(1, True)]),  # Ctrl-C came before its turn
        ([(0, 1, "newsletter"), (3, 4, "password_reset")], []),  # there was nothing to overtake
    ],
)
def test_a_reset_is_judged_by_the_newsletters_that_waited_when_it_came(
    cast: list[tuple[float, float | None, str]], told: list[tuple[int, bool]]
) -> None:
    from windlass.cli.demo.summary import Account, check

    jobs = [
        mail(type, created=created, started=started, status=State.SUCCEEDED if started is not None else State.QUEUED)
        for created, started, type in cast
    ]
    account = Account(
        enqueued=len(jobs), counts={State.SUCCEEDED: len(jobs)}, cast=jobs, victims=frozenset(), complete=False
    )

    assert [(sentence.words, sentence.holds) for sentence in check(account)][1:] == [
        (f"each password reset overtook {passed} newsletters or more", holds) for passed, holds in told
    ]


def test_a_show_without_a_rescue_fails_the_check() -> None:
    from windlass.cli.demo.summary import Account, check

    account = Account(enqueued=2, counts={State.SUCCEEDED: 2}, cast=[], victims=frozenset(), complete=True)

    assert [sentence.words for sentence in check(account) if not sentence.holds] == [
        "the killed worker's render was rescued, ran again and succeeded"
    ]

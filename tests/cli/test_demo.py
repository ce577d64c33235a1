"""`windlass demo`: the whole engine, with a killed worker, on a laptop; live on a terminal, in lines elsewhere."""

from __future__ import annotations

import asyncio
import fcntl
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .conftest import PATIENCE, Start, Windlass

SHOW_CURSOR, HIDE_CURSOR = "\x1b[?25h", "\x1b[?25l"
ENTER_SCREEN, LEAVE_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """`windlass demo` in its own terminal of a given size."""

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
        except OSError:  # the demo has closed the terminal
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


# The whole show. It takes half a minute, most of which the demo waits: shows run beside each other.


def test_it_ends_by_itself_with_every_check_passed_in_lines_and_on_a_live_screen(
    windlass: Windlass, program_dir: Path, tmp_path_factory: pytest.TempPathFactory, terminals: list[Terminal]
) -> None:
    """Given a demo in a pipe, one on a terminal, and one that is interrupted after its kill, each ends as it should."""
    folder, other = tmp_path_factory.mktemp("live"), tmp_path_factory.mktemp("interrupted")
    terminals += [Terminal(folder, "--once", columns=80, lines=24), Terminal(other, columns=120, lines=40)]
    nowhere = {"WINDLASS_URL": "postgresql://nowhere/nothing", "WINDLASS_MAX_CRASHES": "1"}
    with ThreadPoolExecutor() as threads:
        in_lines = threads.submit(windlass, "demo", "--once", **nowhere)
        live = threads.submit(terminals[0].wait)
        interrupted = threads.submit(interrupt, terminals[1], other, "kill -9")

    interrupted.result()
    assert live.result() == 0
    look_at_the_screen(terminals[0], folder)
    ended = in_lines.result()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
    look_at_the_lines(ended.stdout)
    assert [file.name for file in program_dir.iterdir()] == ["app.py"]


def look_at_the_lines(shown: str) -> None:
    assert "kill -9" in shown
    assert re.search(r"its lease has expired: \d+ jobs? released", shown)
    assert re.search(r"\d{3} jobs enqueued, 0 lost", shown)
    assert "the killed worker's render was rescued, ran again and succeeded" in shown
    assert "thumbnail of broken.raw is quarantined" in shown
    assert re.search(r"orders: .*\d+ in pack", shown)
    assert re.search(r"worker \d: .*(pick|pack|ship)-processor-\d busy", shown)
    assert re.search(r" pack  .*failed .*no tape for order 1004", shown)
    assert re.search(r" pick  .*goes on to its next phase, .*: pack", shown)
    assert re.search(r"limits: domain:rope.example 2 of 2, \d waiting", shown)
    assert "16 prices were fetched, never more than 2 at a time of one domain" in shown
    assert re.search(r"the heartbeat fired \d+ times, one job for each tick", shown)
    assert re.search(r" · heartbeat \d+$", shown, re.MULTILINE)
    assert "12 orders went through three phases each, in order: pick, pack, ship" in shown
    assert "FAILED" not in shown
    assert "\x1b" not in shown


def look_at_the_screen(terminal: Terminal, folder: Path) -> None:
    """It left the terminal as it was."""
    shown = terminal.shown
    live, _, after = shown.rpartition(LEAVE_SCREEN)
    assert live.count(ENTER_SCREEN) == 1
    assert shown.rindex(SHOW_CURSOR) > shown.rindex(HIDE_CURSOR)
    for text in ("queues", "jobs/s", "worker 2", "mail-processor-1", "kill -9", ", killed", "released", "error"):
        assert text in CODES.sub("", live)
    assert re.search(r"limits +rope.example 2 of 2, \d waiting", CODES.sub("", live))
    assert re.search(r"♥ [1-9]", CODES.sub("", live))
    for text in ("pick-processor-1", "pack-processor-1", "ship-processor-1", "● 12 of 12"):
        assert text in CODES.sub("", live)
    assert "0 lost" in CODES.sub("", after)
    assert list(folder.iterdir()) == []


def test_a_small_or_simple_terminal_gets_lines(tmp_path: Path, terminals: list[Terminal]) -> None:
    sizes: list[tuple[int, int, dict[str, str]]] = [
        (79, 24, {}), (80, 23, {}), (80, 24, {"NO_COLOR": "1"}), (80, 24, {"TERM": "dumb"}),
    ]  # fmt: skip
    terminals += [Terminal(tmp_path, columns=columns, lines=lines, **more) for columns, lines, more in sizes]

    for terminal in terminals:
        terminal.expect("newsletters wait in the store")
        terminal.press_ctrl_c()

    assert [terminal.wait() for terminal in terminals] == [0] * 4
    assert [terminal.shown.count(ENTER_SCREEN) for terminal in terminals] == [0] * 4


# Ctrl-C


def test_ctrl_c_ends_it_at_every_moment_and_leaves_nothing_behind(tmp_path: Path, terminals: list[Terminal]) -> None:
    moments = ("windlass demo", "workers are starting", "worker 1 is at work")
    with ThreadPoolExecutor() as threads:
        ends = []
        for number, moment in enumerate(moments):
            (folder := tmp_path / str(number)).mkdir()
            terminals.append(Terminal(folder, columns=120, lines=40))
            ends.append(threads.submit(interrupt, terminals[-1], folder, moment))
    for end in ends:
        end.result()


def interrupt(terminal: Terminal, folder: Path, moment: str) -> None:
    """Press Ctrl-C at this moment: the demo counts its jobs, and leaves neither a file nor a process."""
    terminal.expect(moment)
    assert terminal.process.pid in processes_of(folder)

    terminal.press_ctrl_c()

    assert terminal.wait() == 0
    assert "Traceback" not in terminal.shown
    assert "0 lost" in CODES.sub("", terminal.shown.rpartition(LEAVE_SCREEN)[2])
    assert terminal.shown.endswith("\n")
    assert list(folder.iterdir()) == []
    assert processes_of(folder) == []


def test_ctrl_c_ends_the_lines_with_a_summary_and_exit_0(start: Start) -> None:
    demo = start("demo")
    demo.expect("newsletter  +succeeded")

    demo.signal(signal.SIGINT)

    demo.expect("Ctrl-C: stopping")
    demo.expect(r"\d+ jobs enqueued, 0 lost")
    assert demo.wait() == 0


def test_a_closed_pipe_ends_it_without_a_message(tmp_path: Path) -> None:
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
        interrupts.deliver_to(acted.append)

    try:
        interrupts = Interrupts()
        interrupts.catch()
        signal.raise_signal(signal.SIGINT)
        asyncio.run(begin(interrupts))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

    assert acted == [signal.SIGINT]

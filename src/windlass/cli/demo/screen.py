"""The demo on a terminal: one screen, drawn ten times a second, in any size of 80×24 or more.

windlass demo                      the time
a bar of all jobs by state         and its legend
the phases of a pipeline           and how many jobs are in each
limits                             and the jobs that wait; in a low terminal instead of the phases, when in use
queues             throughput
worker 1           worker 2        processors by name
what happens       jobs            beside each other where there is room, otherwise one below the other
"""

from __future__ import annotations

import sys
from contextlib import suppress

from rich.console import Console
from rich.layout import Layout
from rich.live import Live
from rich.panel import Panel

from windlass.cli.demo import panels
from windlass.cli.demo.scene import Scene
from windlass.cli.demo.summary import Summary

WIDE = 150  # columns from which the story and the jobs have room beside each other
TALL = 34  # lines from which there are empty lines, and a longer story
ROOMY = 40  # lines from which all processors have room

FRAME = 2  # lines of a panel's border
QUEUES = 3 + FRAME  # lines
BUSY_PROCESSORS, ALL_PROCESSORS = 6 + FRAME, 11 + FRAME  # lines; no more than six are busy at a time
SHORT_STORY, LONG_STORY = 3 + FRAME, 7 + FRAME  # lines
HEADER, PROGRESS, PHASES, LIMITS = 1, 2, 1, 1  # lines


class Screen:
    """Uses the terminal's alternate screen during the show, and prints the summary on the normal one afterwards."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stdout, highlight=False)
        self._live = Live(console=self._console, screen=True, auto_refresh=False)

    @property
    def columns(self) -> int:
        return self._console.width

    @property
    def lines(self) -> int:
        return self._console.height

    def open(self) -> None:
        self._live.start()

    def show(self, scene: Scene) -> bool:
        try:
            self._live.update(lay_out(scene, self.columns, self.lines), refresh=True)
        except OSError:  # the terminal is gone
            return False
        return True

    def close(self) -> None:
        with suppress(OSError):
            self._live.stop()

    def conclude(self, summary: Summary) -> None:
        with suppress(OSError):
            self._console.print(panels.conclusion(summary))


def lay_out(scene: Scene, columns: int, lines: int) -> Layout:
    """Everything fits into the size; the lines that are left go to the attempts."""
    tall = lines >= TALL
    half = columns // 2
    processors = ALL_PROCESSORS if lines >= ROOMY else BUSY_PROCESSORS
    top = [
        Layout(panels.header(scene, columns), size=HEADER + tall),
        Layout(panels.progress(scene, columns), size=PROGRESS + tall),
        *_under_way(scene, tall=tall),
        _beside(QUEUES, panels.queues(scene, half), panels.throughput(scene.throughput, columns - half)),
        _beside(processors, *(panels.worker(view, half, processors) for view in scene.workers.values())),
    ]
    left = lines - sum(part.size or 0 for part in top)
    screen = Layout()
    screen.split_column(*top, _beside_or_below(scene, columns, left, tall=tall))
    return screen


def _under_way(scene: Scene, *, tall: bool) -> list[Layout]:
    """Orders and limits; where there is no room for both, the limits while they are in use."""
    if tall:
        return [Layout(panels.phases(scene), size=PHASES), Layout(panels.limits(scene), size=LIMITS + 1)]
    return [Layout(panels.limits(scene) if scene.limits else panels.phases(scene), size=PHASES)]


def _beside_or_below(scene: Scene, columns: int, lines: int, *, tall: bool) -> Layout:
    """The story and the attempts."""
    both = Layout()
    if columns >= WIDE:
        width = columns * 2 // 5
        panel = Layout(panels.story(scene, width, lines), size=width)
        both.split_row(panel, Layout(panels.attempts(scene, columns - width, lines, framed=True)))
    else:
        height = LONG_STORY if tall else SHORT_STORY
        panel = Layout(panels.story(scene, columns, height), size=height)
        both.split_column(panel, Layout(panels.attempts(scene, columns, lines - height, framed=tall)))
    return both


def _beside(lines: int, *parts: Panel) -> Layout:
    row = Layout(size=lines)
    row.split_row(*(Layout(part) for part in parts))
    return row

"""The panels of the demo's screen, each drawn from the scene and a size."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from datetime import datetime

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from windlass.cli.demo import program
from windlass.cli.demo.reports import ReportedEnd, Slot
from windlass.cli.demo.scene import AttemptGroup, Scene, Sentence, Throughput, Tone, WorkerHealth, WorkerView
from windlass.cli.demo.summary import Summary
from windlass.cli.show.live_log import SHORT_ID
from windlass.cli.show.output import name_command
from windlass.model.processors import ProcessorState
from windlass.model.rows import QueueRow
from windlass.model.state import State

STATES = {  # in the order of the bar: colour, sign, name
    State.SUCCEEDED: ("green", "●", "succeeded"),
    State.DEAD: ("red", "✖", "dead"),
    State.RUNNING: ("cyan", "▶", "running"),
    State.FAILED: ("yellow", "↻", "to retry"),
    State.QUEUED: ("bright_black", "○", "queued"),
}
TONES = {Tone.PLAIN: "default", Tone.GOOD: "green", Tone.BAD: "red"}
HEALTH = {WorkerHealth.STARTING: "bright_black", WorkerHealth.ALIVE: "green", WorkerHealth.KILLED: "red"}

BLOCKS = " ▁▂▃▄▅▆▇█"
EIGHTHS = len(BLOCKS) - 1
CHART_LINES = 2
FRAME = 4  # columns of a panel's border and padding
CLOCK = 7  # columns before a sentence: its time and a sign
QUEUE = 5  # columns of a queue's name
COUNTS = 21  # columns of a queue's counts
PROCESSOR = 17  # columns of a processor's name
WITH_IDS = 100  # columns from which the attempts show the ids of their jobs
ROOMY = 50  # columns from which a worker shows the ids of its jobs


def header(scene: Scene, columns: int) -> RenderableType:
    line = Table.grid(expand=True)
    line.add_column()
    line.add_column(justify="right")
    said = (f"  {scene.dashboard}", "bold") if scene.dashboard else ("  two workers, one SQLite file", "bright_black")
    name = Text.assemble((" windlass demo ", "bold white on blue"), said)
    name.append(f"  ♥ {len(scene.beats)}", "red" if scene.beats else "bright_black")
    if columns >= WITH_IDS:
        name.append(f" heartbeats, every {program.BEAT} s", "bright_black")
    minutes, seconds = divmod(int(scene.elapsed), 60)
    line.add_row(name, Text.assemble(("Ctrl-C ends it  ", "bright_black"), (f"{minutes}:{seconds:02} ", "bold")))
    return line


def progress(scene: Scene, columns: int) -> RenderableType:
    """One bar of all jobs by state, and a legend that counts them."""
    share = f" {scene.ended} of {scene.enqueued} jobs "
    legend = Text(" ", no_wrap=True, overflow="ellipsis")
    for state, (colour, sign, name) in STATES.items():
        legend.append(f"{sign} {scene.counts.get(state, 0)} {name}   ", colour)
    return Group(Text.assemble(" ", _bar(scene, columns - 1 - len(share)), (share, "bold")), legend)


def _bar(scene: Scene, columns: int) -> Text:
    """Each state has its share of the columns; the borders are rounded, so that the shares add up."""
    total = max(1, scene.enqueued, sum(scene.counts.values()))
    bar, seen, drawn = Text(), 0, 0
    for state, (colour, _, _) in STATES.items():
        seen += scene.counts.get(state, 0)
        upto = round(seen * columns / total)
        bar.append(("─" if state is State.QUEUED else "━") * (upto - drawn), colour)
        drawn = upto
    return bar.append("─" * (columns - drawn), "bright_black")


def phases(scene: Scene) -> RenderableType:
    """How many orders are in each phase of their pipeline, by state."""
    line = Text.assemble((" orders ", "bold"), no_wrap=True, overflow="ellipsis")
    for phase in scene.phases:
        line.append(f" {phase.name} ", "default" if phase.jobs else "bright_black")
        for state in (State.QUEUED, State.RUNNING, State.FAILED):
            colour, sign, _ = STATES[state]
            count = phase.counts.get(state, 0)
            line.append(f"{sign}{count:<3}", colour if count else "bright_black")
        line.append("→", "bright_black")
    return line.append(f" ● {scene.shipped} of {scene.orders}", "green" if scene.shipped else "bright_black")


def limits(scene: Scene) -> RenderableType:
    """How many of each domain's slots are in use, and how many jobs wait for one."""
    line = Text.assemble((" limits ", "bold"), no_wrap=True, overflow="ellipsis")
    for row in scene.limits:
        full = row.used == row.most
        line.append(f" {row.key.partition(':')[2]} ")
        line.append(f"{row.used} of {row.most}", "cyan" if full else "default")
        line.append(f", {row.waiting} waiting  ", "yellow" if row.waiting else "bright_black")
    return line if scene.limits else line.append(f" {program.AT_ONCE} per domain; none is in use", "bright_black")


def queues(scene: Scene, columns: int) -> Panel:
    table = Table.grid(padding=(0, 1))
    table.add_column(style="bold", min_width=QUEUE)
    deepest = max((row.queued for row in scene.queues), default=0)
    for row in scene.queues:
        table.add_row(row.queue, _depth(row.queued, deepest, columns - FRAME - QUEUE - COUNTS), *_waiting(row))
    return _panel(table, "queues")


def _depth(queued: int, deepest: int, columns: int) -> Text:
    return Text(("▇" * -(-queued * columns // max(deepest, 1))).ljust(columns), "blue")


def _waiting(row: QueueRow) -> list[Text]:
    shown = (State.QUEUED, row.queued), (State.RUNNING, row.running), (State.FAILED, row.failed), (State.DEAD, row.dead)
    return [
        Text(f"{STATES[state][1]}{count:<3}", STATES[state][0] if count else "bright_black") for state, count in shown
    ]


def throughput(measured: Throughput, columns: int) -> Panel:
    """Jobs per second as a figure, and as columns of half a second each."""
    width = columns - FRAME
    figure = Text.assemble(
        (f"{measured.current:.0f}", "bold green"), " jobs/s", (f"   at most {measured.peak:.0f}", "bright_black")
    )
    samples = list(measured.samples)[-width:]
    highest = max([*samples, 1.0])
    levels = [round(sample / highest * EIGHTHS * CHART_LINES) for sample in samples]
    rows = [
        "".join(BLOCKS[min(EIGHTHS, max(0, level - EIGHTHS * below))] for level in levels).rjust(width)
        for below in reversed(range(CHART_LINES))
    ]
    return _panel(Group(figure, *(Text(row, "green", no_wrap=True) for row in rows)), "throughput")


def worker(view: WorkerView, columns: int, lines: int) -> Panel:
    """A worker process and its processors; for a killed worker, the jobs that it held when it died."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True, min_width=PROCESSOR)
    table.add_column(no_wrap=True, overflow="ellipsis")
    dead = view.health is WorkerHealth.KILLED
    for slot in _choose_slots(view.slots, lines - 2):
        table.add_row(
            Text(slot.name, "bright_black strike" if dead else "default"), _describe_slot(slot, dead, columns >= ROOMY)
        )
    state = {
        WorkerHealth.STARTING: "starting …",
        WorkerHealth.ALIVE: f"pid {view.pid}",
        WorkerHealth.KILLED: f"pid {view.pid}, killed",
    }
    title = Text.assemble(f"worker {view.number}", " · ", (state[view.health], HEALTH[view.health]))
    return _panel(table, title, HEALTH[view.health] if view.health is not WorkerHealth.ALIVE else "bright_black")


def _choose_slots(slots: Sequence[Slot], room: int) -> list[Slot]:
    """Where there is no room for all processors: the busy ones, then the latest ones, in the order of the phases."""
    ranks = {phase: rank for rank, phase in enumerate(program.order.phases, 1)}
    latest = sorted(slots, key=lambda slot: (slot.state is ProcessorState.IDLE, slot.seconds))
    return sorted(latest[:room], key=lambda slot: (ranks.get(slot.phase, 0), slot.name))


def _describe_slot(slot: Slot, dead: bool, roomy: bool) -> Text:
    id = f" {slot.job[-SHORT_ID:]}" if roomy and slot.job is not None else ""
    match slot.state:
        case ProcessorState.BUSY if dead:
            return Text.assemble((f"✖ {slot.type}", "red"), (id, "bright_black"))
        case ProcessorState.BUSY:
            return Text.assemble((f"▶ {slot.type}", "cyan"), (f"{id} {slot.seconds:.1f}s", "bright_black"))
        case ProcessorState.ERROR:
            return Text("✖ error", "bold red")
        case _:
            return Text("· idle", "bright_black")


def story(scene: Scene, columns: int, lines: int) -> Panel:
    """The newest sentence at the bottom, whole; older ones as far as there is room."""
    room, shown = max(1, lines - 2), list[Text]()
    for index, sentence in enumerate(reversed(scene.story)):
        if len(shown) >= room:
            break
        shown = _sentence(sentence, columns - FRAME - CLOCK, newest=index == 0) + shown
    return _panel(Group(*shown[-room:]), "what happens", "blue")


def _sentence(sentence: Sentence, columns: int, *, newest: bool) -> list[Text]:
    colour = TONES[sentence.tone] if newest else "bright_black"
    first, *rest = textwrap.wrap(sentence.text, max(1, columns)) or [""]
    clock = f"{sentence.at:>3.0f}s {'▸' if newest else ' '} "
    line = Text.assemble((clock, "bright_black"), (first, f"bold {colour}" if newest else colour))
    return [line, *(Text(" " * CLOCK + more, f"bold {colour}" if newest else colour) for more in rest)]


def attempts(scene: Scene, columns: int, lines: int, *, framed: bool) -> RenderableType:
    """The latest attempts that ended, one line each."""
    room = max(1, lines - 2 if framed else lines)
    latest = Group(*(_attempt_line(attempts, ids=columns >= WITH_IDS) for attempts in list(scene.attempts)[-room:]))
    return _panel(latest, "jobs") if framed else Padding(latest, (0, 2))


def _attempt_line(attempts: AttemptGroup, *, ids: bool) -> Text:
    attempt, once = attempts.last, attempts.times == 1
    colour = (
        "green" if attempt.is_good else "red" if attempt.state is None else STATES.get(attempt.state, ("default",))[0]
    )
    which = f"{attempts.times}×" if not once else attempt.job[-SHORT_ID:] if ids else ""
    return Text.assemble(
        (datetime.fromtimestamp(attempt.at).astimezone().strftime("%H:%M:%S"), "bright_black"),
        (f"  {which:>{SHORT_ID if ids else 4}}", "bright_black" if once else "default"),
        f"  {attempt.type:<14}  ",
        (_describe_end(attempt), colour),
        no_wrap=True,
        overflow="ellipsis",
    )


def _describe_end(attempt: ReportedEnd) -> str:
    """How the attempt ended; the error stands first, so that a line that is cut still shows it."""
    if attempt.error is None or attempt.state is None:
        return attempt.text
    type, _, message = attempt.error.partition(": ")
    return f"{attempt.state} ({attempt.attempt}): {type.rpartition('.')[2]}: {message}"


def conclusion(summary: Summary) -> RenderableType:
    """What stays on the terminal."""
    table = Table.grid(padding=(0, 1))
    for check in summary.checks:
        table.add_row(Text("✔", "bold green") if check.holds else Text("✖", "bold red"), check.text)
    colour = "green" if summary.holds else "red"
    parts: list[RenderableType] = [table, Text(), Text(summary.verdict, f"bold {colour}")]
    parts += [Text(line, "bright_black") for line in summary.logs]
    if summary.holds:
        parts.append(
            Text(name_command("your turn: write an app.py as in README.md, then run `windlass dev`"), "bright_black")
        )
    return Panel(Group(*parts), title="what the store holds", title_align="left", border_style=colour, expand=False)


def _panel(content: RenderableType, title: str | Text, colour: str = "bright_black") -> Panel:
    return Panel(content, title=title, title_align="left", border_style=colour, box=box.ROUNDED)

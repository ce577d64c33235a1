"""Whether all is well: one sentence from the rows of queues, workers, figures, gates, schedules and budgets.

The order of `Trouble` is the order of the rules: the first that applies is the sentence, and the others are findings.
The bounds are below. A queue that is slow and not growing is no trouble: it says when it will be empty.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from windlass.clock import in_words
from windlass.model.admission import BudgetRow, Gate, GateKind, GateState, resume_command, spelled_window
from windlass.model.figures import FigureRow, quantile
from windlass.model.reports.health import Health, HealthFinding, HealthLevel, NextStep, QueueHealth, Snapshot, Trouble
from windlass.model.rows import COUNTED, Liveness
from windlass.policy.reports.queue_health import (
    STEP,
    WINDOW,
    add_up,
    count_ended,
    count_left,
    growth_of,
    queue_health,
    recent,
)

STALLED = 300.0  # seconds without an end; longer where attempts take long
LONG_WAIT = 60.0  # seconds: below it, a queue that grows is a burst
DEAD_SHARE, FEWEST_DEAD = 0.01, 3  # of the jobs that ended in WINDOW
MOST_FINDINGS = 5
NUMBERS = ["No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve"]
BAD = (Trouble.NO_WORKER, Trouble.STALLED, Trouble.ERRORS)


def assess(snapshot: Snapshot) -> Health:
    """The health of a moment."""
    queues = [queue_health(snapshot, row.queue) for row in snapshot.queues]
    found = [finding for rule in RULES for finding in rule(snapshot, queues)]
    found.sort(key=lambda finding: ORDER[finding.trouble])  # it keeps each rule's own order, the worst first
    ranked = _rank(queues, found)
    if not found:
        return _assess_good(snapshot, ranked)
    first, rest = found[0], found[1:]
    more = f"{spell_number(len(rest))} more thing{' needs' if len(rest) == 1 else 's need'} a look." if rest else ""
    return Health(
        level=first.level,
        sentence=first.sentence,
        evidence=" ".join(filter(None, (first.evidence, more))),
        actions=first.actions,
        findings=rest[:MOST_FINDINGS],
        queues=ranked,
        at=snapshot.now,
    )


def _assess_good(snapshot: Snapshot, queues: Sequence[QueueHealth]) -> Health:
    alive = [worker for worker in snapshot.workers if worker.alive]
    ended = sum(map(count_ended, recent(snapshot)))
    running, slots = sum(queue.running for queue in queues), sum(worker.concurrency for worker in alive)
    if any(queue.due for queue in queues) or running:
        level = HealthLevel.WELL
        longest = max(1, math.ceil(max((queue.oldest or 0.0 for queue in queues), default=0.0)))
        sentence = f"All is well: every queue moves, nothing waits longer than {in_words(longest)}."
    else:
        level = HealthLevel.IDLE
        ready = f"{spell_number(len(alive))} worker{' is' if len(alive) == 1 else 's are'}" if alive else "No worker is"
        sentence = f"All is quiet: nothing is due. {ready} ready."
    return Health(
        level=level,
        sentence=sentence,
        evidence=f"{ended:,} job{'' if ended == 1 else 's'} ended in the last {in_words(WINDOW)}; "
        f"{running:,} of {slots:,} slots are in use.",
        actions=(),
        findings=(),
        queues=queues,
        at=snapshot.now,
    )


def _rank(queues: Sequence[QueueHealth], found: Sequence[HealthFinding]) -> list[QueueHealth]:
    """The queues with their worst trouble, the worst queue first."""
    worst: dict[str, Trouble] = {}
    for finding in found:
        worst.setdefault(finding.name, finding.trouble)
    marked = [msgspec.structs.replace(queue, trouble=worst.get(f"queue:{queue.queue}")) for queue in queues]
    return sorted(marked, key=lambda queue: (ORDER.get(queue.trouble, len(ORDER)), -(queue.oldest or 0.0), queue.queue))


# The rules, the worst trouble first


def _unserved(snapshot: Snapshot, queues: Sequence[QueueHealth]) -> Iterator[HealthFinding]:
    stuck = [queue for queue in queues if queue.due and not queue.workers and queue.gate is GateState.OPEN]
    for queue in sorted(stuck, key=lambda queue: -queue.due):
        yield _finding(
            Trouble.NO_WORKER,
            f"queue:{queue.queue}",
            f"{queue.queue} stands still: {_jobs(queue)} due and no worker serves it.",
            _say_last_worker(snapshot, queue.queue),
            NextStep(
                label="Copy start command",
                command=f"windlass worker app.py --queue {shlex.quote(queue.queue)}",
                kind="copy",
            ),
            _show_queue(queue.queue),
        )


def _say_last_worker(snapshot: Snapshot, queue: str) -> str:
    gone = [each for each in snapshot.workers if each.state in (Liveness.SILENT, Liveness.DEAD)]
    served = [each for each in gone if each.queues is None or queue in each.queues]
    if not served:
        return "No worker of it is known."
    last = max(served, key=lambda worker: worker.alive_until)
    ago = in_words((snapshot.now - last.alive_until).total_seconds(), coarse=True)
    return f"Its last worker, {last.name}, is {last.state} since {_clock(last.alive_until, snapshot.now)} ({ago})."


def _stalled(snapshot: Snapshot, queues: Sequence[QueueHealth]) -> Iterator[HealthFinding]:
    explained = any(gate.is_closed for gate in snapshot.gates) or any(each.is_spent for each in snapshot.budgets)
    for queue in sorted(queues, key=lambda queue: -(queue.oldest or 0.0)):
        silent = _silent_for(snapshot, queue)
        if silent is None or not queue.workers or queue.gate is not GateState.OPEN:
            continue
        name, span = f"queue:{queue.queue}", in_words(silent, coarse=True)
        waits = f"{_jobs(queue)} due." if queue.due else ""
        if queue.running:
            run = "1 runs" if queue.running == 1 else f"{_count(queue.running, COUNTED)} run"
            yield _finding(
                Trouble.STALLED,
                name,
                f"{queue.queue} has not ended a job for {span}, though {run}.",
                waits,
                NextStep(
                    label="Show running jobs",
                    command=f"windlass jobs list state:running {_term('queue', queue.queue)}",
                    kind="show",
                ),
                NextStep(label="Check the workers", command="windlass doctor", kind="show"),
            )
        elif queue.due and not explained:
            serve = f"{spell_number(queue.workers).lower()} worker{' serves' if queue.workers == 1 else 's serve'}"
            yield _finding(
                Trouble.STALLED,
                name,
                f"{queue.queue} stands still: {_jobs(queue)} due and none starts, though {serve} it.",
                f"The oldest waits {in_words(queue.oldest or 0.0)}; the list says why.",
                _show_queue(queue.queue),
            )


def _silent_for(snapshot: Snapshot, queue: QueueHealth) -> float | None:
    """Seconds since the queue's last end, if that is long for its jobs; None: it is not, or it cannot be known.

    A queue whose attempts take an hour is not stalled after five minutes. Where none of them ended in the last hour,
    it counts only if other jobs wait.
    """
    figures = [row for row in snapshot.figures if row.queue == queue.queue and (count_left(row) or row.failed)]
    waits = (queue.oldest or 0.0) >= STALLED and queue.due > 0
    if not queue.running and not waits:
        return None
    now = snapshot.now
    idle = [row.at for row in snapshot.depths if row.queue == queue.queue and not row.running]
    if not figures:
        if not waits:
            return None
        seen = [row.at for row in snapshot.depths if row.queue == queue.queue]
        began = max(idle) if queue.running and idle else min(seen, default=now) if queue.running else None
        silent = queue.oldest or 0.0 if began is None else (now - began).total_seconds()
    else:
        last = min(now, max(row.at for row in figures) + timedelta(seconds=STEP))
        silent = (now - last).total_seconds()
        if queue.running and idle:  # nothing ran then: the jobs that run now began later
            silent = min(silent, (now - max(idle)).total_seconds())
    usual = quantile(add_up(row.runs for row in figures), 0.95) or 0.0
    return silent if silent >= max(STALLED, 2 * usual) else None


def _dying(snapshot: Snapshot, queues: Sequence[QueueHealth]) -> Iterator[HealthFinding]:
    """Of all jobs, or else of single queues."""
    figures = recent(snapshot)
    overall = _dying_of(figures, "", snapshot.cause)
    if overall is not None:
        yield overall
        return
    for queue in sorted(queues, key=lambda queue: -(queue.dead_share or 0.0)):
        found = _dying_of([row for row in figures if row.queue == queue.queue], queue.queue, None)
        if found is not None:
            yield found


def _dying_of(figures: Sequence[FigureRow], queue: str, cause: str | None) -> HealthFinding | None:
    dead = sum(row.dead for row in figures)
    # Most jobs leave the queue of a phase for the next phase: they ended there, and did not die.
    ended = sum(map(count_left if queue else count_ended, figures))
    if dead < FEWEST_DEAD or dead <= DEAD_SHARE * ended:
        return None
    among = f" of {queue}" if queue else ""
    every = round(ended / dead)
    what = f"Every job{among} dies" if dead == ended else f"One job in {max(2, every):,}{among} dies"
    said = f"{what}: {cause}" if cause else what
    where = f" {_term('queue', queue)}" if queue else ""
    return _finding(
        Trouble.ERRORS,
        f"queue:{queue}" if queue else "",
        said if said.endswith((".", "…")) else f"{said}.",
        f"{dead:,} of {ended:,} jobs that {'left it' if queue else 'ended'} in the last {in_words(WINDOW)} are dead.",
        NextStep(label="Show dead jobs", command=f"windlass jobs list state:dead{where}", kind="show"),
        NextStep(label="Replay dead jobs…", command=f"windlass jobs replay state:dead{where}", kind="change"),
    )


def _behind(snapshot: Snapshot, queues: Sequence[QueueHealth]) -> Iterator[HealthFinding]:
    late = [queue for queue in queues if queue.growing and (queue.oldest or 0.0) > LONG_WAIT]
    served = [queue for queue in late if queue.workers and queue.gate is GateState.OPEN]
    for queue in sorted(served, key=lambda queue: -(queue.oldest or 0.0)):
        grows = growth_of(snapshot, queue.queue)
        pace = f"{queue.per_second:.1f} per s end" + (f" and {queue.per_second + grows:.1f} come in" if grows else "")
        needed = queue.workers_needed
        now = f"{spell_number(queue.workers).lower()} serve{'s' if queue.workers == 1 else ''} it"
        keep = f"; {spell_number(needed).lower()} workers would keep up, and {now}" if needed else ""
        yield _finding(
            Trouble.BEHIND,
            f"queue:{queue.queue}",
            f"{queue.queue} falls behind: the oldest due job waits {in_words(queue.oldest or 0.0)}, "
            "and it takes in more than it ends.",
            f"{pace}{keep}.",
            NextStep(
                label="Copy start command",
                command=f"windlass worker app.py --queue {shlex.quote(queue.queue)}",
                kind="copy",
            ),
            _show_queue(queue.queue),
        )


def _late(snapshot: Snapshot, queues: Sequence[QueueHealth]) -> Iterator[HealthFinding]:
    late = [row for row in snapshot.schedules if row.late is not None]
    alive = any(worker.alive for worker in snapshot.workers)
    for row in sorted(late, key=lambda row: -(row.late or 0.0)):
        assert row.next_at is not None, "a late schedule has a next tick"
        fires = "" if alive else " No worker is there to fire it."
        yield _finding(
            Trouble.LATE,
            f"schedule:{row.name}",
            f"{row.name} is {in_words(row.late or 0.0, coarse=True)} late.",
            f"It was due at {_clock(row.next_at, snapshot.now)}.{fires}",
            NextStep(label="Run now…", command=f"windlass schedules fire {shlex.quote(row.name)}", kind="change"),
        )


def _gated(snapshot: Snapshot, queues: Sequence[QueueHealth]) -> Iterator[HealthFinding]:
    closed = [(gate, _behind_gate(snapshot, gate, queues)) for gate in snapshot.gates if gate.is_closed]
    for gate, waiting in sorted(closed, key=lambda pair: (-(pair[1] or 0), pair[0].since)):
        if waiting == 0:
            continue
        by = f" by {gate.actor}" if gate.actor else ""
        span = in_words((snapshot.now - gate.since).total_seconds(), coarse=True)
        held = "" if waiting is None else f": {_waiters(waiting)}"
        oldest = max((each.oldest or 0.0 for each in queues if each.queue == gate.name), default=0.0)
        waits = f"The oldest waits {in_words(oldest)}." if gate.kind is GateKind.QUEUE and oldest else ""
        yield _finding(
            Trouble.GATE,
            "" if gate.kind is GateKind.ALL else f"{gate.kind}:{gate.name}",
            f"{_subject(gate)} is {gate.state}{by} for {span}{held}.",
            " ".join(filter(None, (f"“{gate.reason}”." if gate.reason else "", waits))),
            NextStep(label="Open gate…", command=resume_command(gate.kind, gate.name), kind="change"),
        )


def _behind_gate(snapshot: Snapshot, gate: Gate, queues: Sequence[QueueHealth]) -> int | None:
    """Jobs that the gate keeps; None: no index counts the jobs of a type."""
    match gate.kind:
        case GateKind.ALL:
            return sum(queue.due for queue in queues)
        case GateKind.QUEUE:
            return sum(queue.due for queue in queues if queue.queue == gate.name)
        case GateKind.TENANT:
            return _queued_of(snapshot, gate.name)
        case GateKind.TYPE:
            return None if any(queue.due for queue in queues) else 0


def _subject(gate: Gate) -> str:
    if gate.kind is GateKind.ALL:
        return "Everything"
    return gate.name if gate.kind is GateKind.QUEUE else f"{gate.kind.capitalize()} {gate.name}"


def _spent(snapshot: Snapshot, queues: Sequence[QueueHealth]) -> Iterator[HealthFinding]:
    spent = [(row, _behind_budget(snapshot, row, queues)) for row in snapshot.budgets if row.is_spent]
    for row, waiting in sorted(spent, key=lambda pair: (-pair[1], pair[0].name)):
        if not waiting:
            continue
        window = spelled_window(row.seconds)
        until = f" until {_clock(row.until, snapshot.now, seconds=False)}" if row.cents else ""
        what = f"has spent its {window}" if row.cents else "has a budget of 0"
        yield _finding(
            Trouble.BUDGET,
            f"{row.kind}:{row.name}",
            f"{row.name} {what}: {_waiters(waiting)}{until}.",
            f"{row.spent:,} of {row.cents:,} cents of the {row.kind} are spent.",
            NextStep(
                label="Raise the budget…",
                command=f"windlass budgets set --{row.kind} {shlex.quote(row.name)} CENTS --per {window}",
                kind="change",
            ),
        )


def _behind_budget(snapshot: Snapshot, row: BudgetRow, queues: Sequence[QueueHealth]) -> int:
    if row.kind == "tenant":
        return _queued_of(snapshot, row.name)
    return sum(queue.due for queue in queues if queue.queue == row.name)


def _queued_of(snapshot: Snapshot, tenant: str) -> int:
    return sum(row.queued for row in snapshot.tenants if row.name == tenant)


Rule = Callable[[Snapshot, Sequence[QueueHealth]], Iterator[HealthFinding]]
RULES: tuple[Rule, ...] = (_unserved, _stalled, _dying, _behind, _late, _gated, _spent)
ORDER: dict[Trouble | None, int] = {trouble: place for place, trouble in enumerate(Trouble)}


# Words


def _finding(trouble: Trouble, name: str, sentence: str, evidence: str, *actions: NextStep) -> HealthFinding:
    level = HealthLevel.BAD if trouble in BAD else HealthLevel.WARNING
    return HealthFinding(trouble=trouble, level=level, name=name, sentence=sentence, evidence=evidence, actions=actions)


def _show_queue(queue: str) -> NextStep:
    term = _term("queue", queue)
    return NextStep(label="Show jobs", command=f"windlass jobs list state:queued,failed {term}", kind="show")


def _term(field: str, value: str) -> str:
    """A term of a filter, for a shell."""
    quoted = value if value and not set(value) & set(' \t,*"\\') else '"' + value.replace('"', '\\"') + '"'
    return shlex.quote(f"{field}:{quoted}")


def _jobs(queue: QueueHealth) -> str:
    return "1 job is" if queue.due == 1 else f"{_count(queue.due, queue.counted)} jobs are"


def _waiters(count: int) -> str:
    return "1 waits" if count == 1 else f"{_count(count, COUNTED)} wait"


def _count(count: int, most: int) -> str:
    return f"{count:,}" if count <= most else f"{most:,}+"


def spell_number(count: int) -> str:
    """`Three`; from 13 on with digits."""
    return NUMBERS[count] if count < len(NUMBERS) else f"{count:,}"


def _clock(moment: datetime, now: datetime, *, seconds: bool = True) -> str:
    """`11:52:08 UTC`; of another day `Tue 17 Nov, 03:00 UTC`. The end of a day is `00:00 UTC`."""
    near = abs((moment - now).total_seconds()) < 86_400
    form = ("%H:%M:%S UTC" if seconds else "%H:%M UTC") if near else "%a %d %b, %H:%M UTC"
    return f"{moment.astimezone(UTC):{form}}"

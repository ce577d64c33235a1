"""`windlass worker`: runs jobs, in this process or in several processes under a supervisor."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import click

from windlass.cli.parse.complete import complete_name
from windlass.cli.parse.options import lifeline_option, log_format_option, log_level_option
from windlass.cli.parse.program_argument import find_program, program_argument
from windlass.cli.show.output import print_note

FIRST = 1  # the number of a supervisor's first process: it alone warns


@click.command(short_help="Run the jobs of a program.")
@program_argument("target")
@click.option("--processes", type=click.IntRange(min=1), default=1, show_default=True, help="Worker processes.")
@click.option(
    "--queue",
    "queues",
    metavar="QUEUE",
    multiple=True,
    shell_complete=complete_name("queue"),
    help="Serve only this queue; may be repeated.",
)
@click.option(
    "--type",
    "types",
    metavar="TYPE",
    multiple=True,
    shell_complete=complete_name("type"),
    help="Run only this job type; may be repeated.",
)
@click.option("--concurrency", type=click.IntRange(min=1), help="The number of jobs at a time in each process.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65_535),
    help="Serve /metrics, /healthz and /readyz here; a second process takes the next port.",
)
@log_level_option
@log_format_option
@lifeline_option
@click.option("--number", type=int, hidden=True, help="The number of this process under its supervisor.")
@click.option("--lines", is_flag=True, hidden=True, help="Print jobs as `windlass dev` does, instead of logging them.")
@click.pass_context
def worker(
    ctx: click.Context,
    target: str | None,
    processes: int,
    queues: tuple[str, ...],
    types: tuple[str, ...],
    concurrency: int | None,
    metrics_port: int | None,
    log_level: str,
    log_format: str,
    lifeline: int | None,
    number: int | None,
    lines: bool,
) -> None:
    """Run the jobs of a program.

    TARGET is a file such as app.py, or package.module:app; also -a or WINDLASS_APP. Without it, the command takes the
    one file in this directory that makes a Windlass app, as `windlass dev` does.

    SIGTERM and Ctrl-C stop the worker gracefully: running jobs have the grace time (WINDLASS_GRACE, 25 s) to end. Then
    the worker releases them, and counts no attempt. A second signal ends the worker at once. SIGUSR1 logs where each
    running handler and each thread is.
    """
    from windlass.observe.logs import set_up

    target = find_program("worker", target)
    set_up(log_level, name=None if number is None else str(number), format=log_format)
    if processes > 1:
        options = ["--log-level", log_level, "--log-format", log_format]
        options += [] if concurrency is None else ["--concurrency", str(concurrency)]
        options += [] if metrics_port is None else ["--metrics-port", str(metrics_port)]
        ctx.exit(_supervise(target, processes, queues, types, options))
    _work(
        target,
        lifeline,
        lines,
        warns=number in (None, FIRST),
        queues=queues or None,
        types=types or None,
        concurrency=concurrency,
        metrics_port=metrics_port,
        number=number,
    )


def _work(
    target: str,
    lifeline: int | None,
    lines: bool,
    *,
    warns: bool,
    metrics_port: int | None,
    number: int | None,
    **options: Any,
) -> None:
    from windlass.cli.process.run_worker import run_worker
    from windlass.cli.show.live_log import JobLines, stop_own_process
    from windlass.declare.program import load
    from windlass.errors import SchemaMissing, SchemaOutdated
    from windlass.observe.log_lines import LogSubscriber
    from windlass.observe.logs import hide_names
    from windlass.store.migrate import MIGRATE

    app = load(target)
    hide_names(app.settings.redact)
    port = _choose_port(app.settings.metrics_port if metrics_port is None else metrics_port, number)
    if port != app.settings.metrics_port:
        app.settings = app.settings.with_(metrics_port=port)
    if warns:
        warn_of_queues(target, options["queues"] or (), {definition.queue for definition in app._registry})
    try:
        run_worker(
            lambda: app.worker(**options),
            subscribers=(JobLines(stop_own_process) if lines else LogSubscriber(app.settings.redact),),
            lifeline=lifeline,
        )
    except (SchemaMissing, SchemaOutdated) as error:  # a bare `migrate` may not use the program's database
        raise type(error)(str(error).replace(MIGRATE, f"run: windlass migrate {target}")) from error


def _choose_port(port: int | None, number: int | None) -> int | None:
    """Of several processes the first has the port that was named, the second the next one, and so on."""
    return port if not port or number is None else port + number - FIRST


def warn_of_queues(target: str, queues: Sequence[str], known: Collection[str]) -> None:
    """A queue that no job type has as its own gets jobs only from `options(queue=…)`: it may be a misspelling."""
    from windlass.config import suggest

    for queue in queues:
        if queue not in known and known:
            print_note(f"no job type of {target} uses the queue {queue!r}{suggest(queue, dict.fromkeys(known))}")


def _supervise(
    target: str,
    processes: int,
    queues: tuple[str, ...],
    types: tuple[str, ...],
    options: Sequence[str],
) -> int:
    import asyncio

    from windlass.cli.process.supervisor import Supervisor
    from windlass.declare.program import check_source, parse

    check_source(parse(target))  # a misspelt name ends this command, instead of failing in every child for ever
    common = ["worker", target, *options]
    for queue in queues:
        common += ["--queue", queue]
    for type in types:
        common += ["--type", type]

    async def supervise() -> int:
        supervisor = Supervisor(lambda number: [*common, "--number", str(number)], processes=processes)
        return await supervisor.run()

    return asyncio.run(supervise())

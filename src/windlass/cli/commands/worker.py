"""`windlass worker`: runs jobs, in this process or in several processes under a supervisor."""

from __future__ import annotations

from typing import Any

import click

from windlass.cli.parse.options import lifeline_option, log_level_option


@click.command(short_help="Run the jobs of a program.")
@click.argument("target")
@click.option("--processes", type=click.IntRange(min=1), default=1, show_default=True, help="Worker processes.")
@click.option("--queue", "queues", metavar="QUEUE", multiple=True, help="Serve only this queue; may be repeated.")
@click.option("--type", "types", metavar="TYPE", multiple=True, help="Run only this job type; may be repeated.")
@click.option("--concurrency", type=click.IntRange(min=1), help="The number of jobs at a time in each process.")
@log_level_option
@lifeline_option
@click.option("--number", type=int, hidden=True, help="The number of this process under its supervisor.")
@click.option("--lines", is_flag=True, hidden=True, help="Print jobs as `windlass dev` does, instead of logging them.")
@click.pass_context
def worker(
    ctx: click.Context,
    target: str,
    processes: int,
    queues: tuple[str, ...],
    types: tuple[str, ...],
    concurrency: int | None,
    log_level: str,
    lifeline: int | None,
    number: int | None,
    lines: bool,
) -> None:
    """Run the jobs of TARGET: a file such as app.py, or package.module:app.

    SIGTERM and Ctrl-C stop the worker gracefully: running jobs have the grace time (WINDLASS_GRACE, 25 s) to end. Then
    the worker releases them, and counts no attempt. A second signal ends the worker at once.
    """
    from windlass.observe.logs import set_up

    set_up(log_level, name=None if number is None else str(number))
    if processes > 1:
        ctx.exit(_supervise(target, processes, queues, types, concurrency, log_level))
    _work(target, lifeline, lines, queues=queues or None, types=types or None, concurrency=concurrency)


def _work(target: str, lifeline: int | None, lines: bool, **options: Any) -> None:
    from windlass.cli.process.run_worker import run_worker
    from windlass.cli.show.live_log import JobLines, stop_own_process
    from windlass.declare.program import load
    from windlass.errors import SchemaMissing, SchemaOutdated
    from windlass.observe.logs import LogSubscriber

    app = load(target)
    _warn_of_misspelt(options["queues"] or (), {definition.queue for definition in app.registry})
    try:
        run_worker(
            lambda: app.worker(**options),
            subscribers=(JobLines(stop_own_process) if lines else LogSubscriber(),),
            lifeline=lifeline,
        )
    except (SchemaMissing, SchemaOutdated) as error:  # a bare `migrate` may not use the program's database
        raise type(error)(str(error).replace("run: windlass migrate", f"run: windlass migrate {target}")) from error


def _warn_of_misspelt(queues: tuple[str, ...], known: set[str]) -> None:
    """A queue may exist only by `options(queue=…)`; so only a name that is nearly a known one is a likely mistake."""
    import difflib
    import logging

    for queue in queues:
        for close in [] if queue in known else difflib.get_close_matches(queue, known, n=1):
            text = "no job type of this program has the queue %r; did you mean %r?"
            logging.getLogger("windlass").warning(text, queue, close)


def _supervise(
    target: str,
    processes: int,
    queues: tuple[str, ...],
    types: tuple[str, ...],
    concurrency: int | None,
    log_level: str,
) -> int:
    import asyncio

    from windlass.cli.process.supervisor import Supervisor
    from windlass.declare.program import check_source, parse

    check_source(parse(target))  # a misspelt name ends this command, instead of failing in every child for ever
    common = ["worker", target, "--log-level", log_level]
    for queue in queues:
        common += ["--queue", queue]
    for type in types:
        common += ["--type", type]
    if concurrency is not None:
        common += ["--concurrency", str(concurrency)]

    async def supervise() -> int:
        supervisor = Supervisor(lambda number: [*common, "--number", str(number)], processes=processes)
        return await supervisor.run()

    return asyncio.run(supervise())

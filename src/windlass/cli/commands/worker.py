"""`windlass worker`: run jobs, in this process or in several under a supervisor."""

from __future__ import annotations

import click

from windlass.cli.parse.options import lifeline, log_level


@click.command(short_help="Run the jobs of a program.")
@click.argument("target")
@click.option("--processes", type=click.IntRange(min=1), default=1, show_default=True, help="Worker processes.")
@click.option("--queue", "queues", metavar="QUEUE", multiple=True, help="Serve only this queue; may be repeated.")
@click.option("--type", "types", metavar="TYPE", multiple=True, help="Run only this job type; may be repeated.")
@click.option("--concurrency", type=click.IntRange(min=1), help="Jobs at a time, in each process.")
@log_level
@lifeline
@click.option("--number", type=int, hidden=True, help="Which of a supervisor's children this is.")
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

    SIGTERM and Ctrl-C stop it gracefully: running jobs have the grace time (WINDLASS_GRACE, 25 s) to end, and are
    given back afterwards, with no attempt counted. A second signal ends it at once.
    """
    from windlass.observe.logs import set_up

    set_up(log_level, name=None if number is None else str(number))
    if processes > 1:
        ctx.exit(_supervise(target, processes, queues, types, concurrency, log_level))
    _work(target, queues, types, concurrency, lifeline, lines)


def _work(
    target: str,
    queues: tuple[str, ...],
    types: tuple[str, ...],
    concurrency: int | None,
    lifeline: int | None,
    lines: bool,
) -> None:
    from windlass.cli.process.run_worker import run_worker
    from windlass.cli.show.live_log import JobLines, stop_own_process
    from windlass.declare.program import load
    from windlass.errors import SchemaMissing, SchemaOutdated
    from windlass.observe.logs import LogSubscriber

    app = load(target)
    try:
        run_worker(
            lambda: app.worker(concurrency=concurrency, queues=queues or None, types=types or None),
            subscribers=(JobLines(stop_own_process) if lines else LogSubscriber(),),
            lifeline=lifeline,
        )
    except (SchemaMissing, SchemaOutdated) as error:  # the program's own database, which a bare `migrate` may not know
        raise type(error)(str(error).replace("run: windlass migrate", f"run: windlass migrate {target}")) from error


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

    check_source(parse(target))  # a misspelt name should end this, not make every child fail for ever
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

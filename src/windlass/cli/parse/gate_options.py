"""The gate, tenant or queue that a command names, and a suggestion where the name may be misspelt."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.parse.complete import complete_name
from windlass.cli.parse.mistakes import EXAMPLES, HelpfulGroup
from windlass.cli.show.output import print_note

if TYPE_CHECKING:
    from windlass.methods.admin import GateName
    from windlass.store.protocol import Store

SOON = "workers know within a second"


class ListGroup(HelpfulGroup):
    """`windlass gates` is short for `windlass gates list`, and so is `windlass gates --json`."""

    takes_name = False  # whether a word that is no command is an argument of `list`

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = args[0] if args else ""
        known = first in self.commands or first in ctx.help_option_names
        if not ctx.resilient_parsing and not known and (self.takes_name or not first or first.startswith("-")):
            args = ["list", *args]
        return super().parse_args(ctx, args)


class NamedListGroup(ListGroup):
    """`windlass limits domain` is short for `windlass limits list domain`."""

    takes_name = True


def gate_options(command: Any) -> Any:
    """The options that name a gate: exactly one of them is given."""
    options = (
        _named_option("queue", "The gate of a queue."),
        _named_option("type", "The gate of a type of job."),
        _named_option("tenant", "The gate of a tenant."),
        click.option("--all", "everything", is_flag=True, help="The gate of everything."),
    )
    return _apply_options(options, command)


def spender_options(command: Any) -> Any:
    """The options that name a budget: that of a tenant or of a queue."""
    options = (
        _named_option("tenant", "The budget of a tenant."),
        _named_option("queue", "The budget of a queue."),
    )
    return _apply_options(options, command)


def _named_option(kind: str, about: str) -> Callable[[Any], Any]:
    return click.option(f"--{kind}", metavar=kind.upper(), help=about, shell_complete=complete_name(kind))


def _apply_options(options: Iterable[Callable[[Any], Any]], command: Any) -> Any:
    for option in reversed([*options]):
        command = option(command)
    return command


def parse_target(verb: str, queue: str | None, type: str | None, tenant: str | None, everything: bool) -> GateName:
    """The one gate that the options name."""
    from windlass.methods.admin import gate_of

    given = {"--queue": queue, "--type": type, "--tenant": tenant, "--all": "" if everything else None}
    named = [option for option, value in given.items() if value is not None]
    if len(named) > 1:
        raise click.UsageError(f"{' and '.join(named)} are {len(named)} gates; {verb} one at a time")
    if not named:
        raise click.UsageError(
            f"name a gate: --queue, --type or --tenant, or --all for everything, for example: "
            f"windlass gates {verb} --queue mail"
        )
    return gate_of(queue, type, tenant, everything)


def parse_spender(verb: str, tenant: str | None, queue: str | None) -> tuple[str, str]:
    """The budget that the options name: `tenant` or `queue`, and its name."""
    from windlass.methods.admin import spender

    if (tenant is None) == (queue is None):
        what = "name a budget" if tenant is None else "a budget belongs to a tenant or to a queue"
        raise click.UsageError(f"{what}: --tenant or --queue, for example: {EXAMPLES[f'budgets {verb}']}")
    return spender(tenant, queue)


async def read_known_names(store: Store, kind: str) -> set[str]:
    """The queues, types or tenants that jobs, workers or gates have named."""
    match kind:
        case "queue":
            served = {queue for row in await store.workers() for queue in row.queues or ()}
            names = served | {row.queue for row in await store.queues()}
        case "type":
            names = {type for row in await store.workers() for type in row.types}
        case "tenant":
            names = {row.name for row in await store.tenants()}
        case _:
            return set()
    return names | {gate.name for gate in await store.gates() if gate.kind == kind}


def suggest_name(what: str, name: str, known: Iterable[str]) -> None:
    """Print a note about an unknown name that is close to a known one; any other unknown name may be for later use."""
    import difflib

    names = set(known) - {name}
    close = difflib.get_close_matches(name, sorted(names), n=1)
    if name not in known and close:
        print_note(f"no {what} {name!r} has been seen yet; did you mean {close[0]!r}?")

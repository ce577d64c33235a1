"""`windlass completion`: the script that lets a shell complete commands and options."""

from __future__ import annotations

import click

VARIABLE = "_WINDLASS_COMPLETE"
LINES = {
    "bash": 'eval "$(windlass completion bash)"          # in ~/.bashrc',
    "zsh": 'eval "$(windlass completion zsh)"           # in ~/.zshrc',
    "fish": "windlass completion fish | source           # in ~/.config/fish/config.fish",
}


@click.command(
    short_help="Print the script for tab completion in your shell.",
    help="Print the script that completes commands and options.\n\n\b\n" + "\n".join(LINES.values()),
)
@click.argument("shell", type=click.Choice(tuple(LINES)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    from click.shell_completion import get_completion_class

    make = get_completion_class(shell)
    assert make is not None, "click supports these three shells"
    root = ctx.find_root()
    complete = make(root.command, {}, "windlass", VARIABLE)
    # Not source(): for bash it would start a shell to read its version, and print a warning into the output.
    click.echo(complete.source_template % complete.source_vars())

"""`windlass completion`: the script that lets a shell complete commands, options, programs and names."""

from __future__ import annotations

import click

VARIABLE = "_WINDLASS_COMPLETE"
LINES = {
    "bash": 'eval "$(windlass completion bash)"          # in ~/.bashrc',
    "zsh": 'eval "$(windlass completion zsh)"           # in ~/.zshrc',
    "fish": "windlass completion fish | source           # in ~/.config/fish/config.fish",
}

BASH = r"""%(complete_func)s() {
    local IFS=$'\n' line=${COMP_LINE:0:COMP_POINT} word before type value completion
    word=${line##* }
    # bash replaces only what stands after the last colon of the word
    [[ $COMP_WORDBREAKS == *:* ]] && before=${word%%"${word##*:}"}
    for completion in $(env COMP_WORDS="$line" %(complete_var)s=bash_complete "$1" 2>/dev/null); do
        IFS=',' read -r type value <<< "$completion"
        [[ $value == *[:./] ]] && compopt -o nospace
        COMPREPLY+=("${value#"$before"}")
    done
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


@click.command(
    short_help="Print the script for tab completion in your shell.",
    help="Print the script that completes commands, options, programs and names.\n\n\b\n" + "\n".join(LINES.values()),
)
@click.argument("shell", type=click.Choice(tuple(LINES)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    from click.shell_completion import get_completion_class

    register_bash()
    make = get_completion_class(shell)
    assert make is not None, "click supports these three shells"
    root = ctx.find_root()
    complete = make(root.command, {}, "windlass", VARIABLE)
    # Not source(): for bash it would start a shell to read its version, and print a warning into the output.
    click.echo(complete.source_template % complete.source_vars())


def register_bash() -> None:
    """Bash splits `state:de` and `app:ad` at the colon, and click's own script does not put the parts together."""
    from click.shell_completion import BashComplete, add_completion_class, split_arg_string

    class WholeWords(BashComplete):
        source_template = BASH

        def get_completion_args(self) -> tuple[list[str], str]:
            import os

            line = os.environ["COMP_WORDS"]
            words = split_arg_string(line)[1:]
            return (words, "") if line.endswith(" ") or not words else (words[:-1], words[-1])

    add_completion_class(WholeWords)

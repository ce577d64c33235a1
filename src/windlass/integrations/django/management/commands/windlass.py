"""`manage.py windlass …`: Windlass's own command line, with the project as its program."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, SystemCheckError
from django.db import connections

from windlass.integrations.commands import run_command_line
from windlass.integrations.django.instance import PROGRAM, get_app

CHECKED_FIRST = frozenset({"worker", "dev"})
"""Commands that run `manage.py check` first."""

READ_BY_DJANGO = ("--settings", "--pythonpath")
"""Options that manage.py has already read."""


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    """Passes all arguments on unread: the options are Windlass's own."""

    help = "Windlass's command line for this project: worker, dev, migrate, run; see: manage.py windlass --help"

    def run_from_argv(self, argv: list[str]) -> None:
        try:
            self.handle(*_without_django_options(argv[2:]))
        except SystemCheckError as error:
            self.stderr.write(str(error), lambda text: text)
            raise SystemExit(1) from None
        finally:
            connections.close_all()

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("arguments", nargs="*")

    def handle(self, *arguments: str, **options: Any) -> None:
        given = arguments or tuple(options.get("arguments", ()))
        if given and given[0] in CHECKED_FIRST:
            self.check()
        try:
            run_command_line(given, target=PROGRAM, url=get_app().settings.url, name="manage.py windlass")
        except SystemExit as end:
            if end.code or not options:
                raise  # `call_command("windlass", "migrate")` returns when the command is done


def _without_django_options(arguments: list[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if skip or argument.startswith(tuple(f"{option}=" for option in READ_BY_DJANGO)):
            skip = False
        elif argument in READ_BY_DJANGO:
            skip = True
        else:
            kept.append(argument)
    return kept

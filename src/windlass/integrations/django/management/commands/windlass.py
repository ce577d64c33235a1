"""`manage.py windlass …`: Windlass's own command line, with the project as its program."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, SystemCheckError
from django.db import connections

from windlass.integrations.commands import pass_on
from windlass.integrations.django.instance import PROGRAM, the_app

WORKS = frozenset({"worker", "dev"})
DJANGOS = ("--settings", "--pythonpath")
"""Options that manage.py has read already."""


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    """Passes on what follows, unread: the options are Windlass's own."""

    help = "Windlass's command line for this project: worker, dev, migrate, run; see: manage.py windlass --help"

    def run_from_argv(self, argv: list[str]) -> None:
        try:
            self.handle(*_without_djangos(argv[2:]))
        except SystemCheckError as error:
            self.stderr.write(str(error), lambda text: text)
            raise SystemExit(1) from None
        finally:
            connections.close_all()

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("arguments", nargs="*")

    def handle(self, *arguments: str, **options: Any) -> None:
        words = arguments or tuple(options.get("arguments", ()))
        if words and words[0] in WORKS:
            self.check()
        try:
            pass_on(words, target=PROGRAM, url=the_app().settings.url, name="manage.py windlass")
        except SystemExit as end:
            if end.code or not options:
                raise  # `call_command("windlass", "migrate")` returns when it is done


def _without_djangos(words: list[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for word in words:
        if skip or word.startswith(tuple(f"{option}=" for option in DJANGOS)):
            skip = False
        elif word in DJANGOS:
            skip = True
        else:
            kept.append(word)
    return kept

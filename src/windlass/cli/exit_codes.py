"""The exit codes of `windlass`; docs/cli.md and `windlass --help` list them."""

from __future__ import annotations

REFUSED = 1  # a job was refused or is dead, a check failed, or the user answered no
WORKERS_OUTDATED = 3  # `migrate --check`: workers of a program two versions behind have to go first
TRY_AGAIN = 75  # EX_TEMPFAIL, only between `dev` and its worker: the database cannot be reached yet
TIMED_OUT = 124  # the same code as timeout(1)
INTERRUPTED = 130  # 128 + SIGINT
NO_READER = 141  # 128 + SIGPIPE: the reader of the output has closed the pipe

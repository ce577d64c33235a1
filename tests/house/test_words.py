"""Comments and docstrings of the package name their subject: words that had to be guessed do not come back.

docs/glossary.md has the words that are used instead.
"""

from __future__ import annotations

import re
from collections import Counter

from .source import comments, expect_none

BANNED = {
    # word: what to write
    "whoever": "name the subject: the job, the worker, the caller, the statement",
    "whomever": "name the subject: the job, the worker, the caller, the statement",
    "whom": "name the subject: the job, the worker, the caller, the statement",
    "somebody": "name the subject: a worker, another transaction, the operator",
    "nobody": "name the subject: no worker, no job, no other transaction",
    "everybody": "name the subject: every worker, every job",
    "anybody": "name the subject: any worker, any job",
    "crew": "WorkerState, or: the worker",
    "purse": "budget",
    "purses": "budgets",
    "turnstile": "limit counter",
    "turnstiles": "limit counters",
    "offspring": "child process",
    "haul": "claim, claimed jobs",
    "wish": "claim plan",
    "wishes": "claim plans",
    "notebook": "RunMemory, or: what the run remembers",
    "one too many": "above the limit",
    "twin": "the awaited form, the blocking form",
    "twins": "the awaited form, the blocking form",
    "heart": "heartbeat, beat",
}
PATTERN = re.compile(rf"\b({'|'.join(BANNED)})\b", re.IGNORECASE)


def test_comments_use_plain_words() -> None:
    places = [(comment, word.lower()) for comment in comments() for word in PATTERN.findall(comment.text)]
    folders = Counter(comment.file.rpartition("/")[0] for comment, _ in places)

    expect_none(
        (f"{comment.file}:{comment.line}: “{word}”; {BANNED[word]}" for comment, word in places),
        f"write these sentences in plain words ({', '.join(f'{name} {n}' for name, n in sorted(folders.items()))})",
    )


def test_the_search_reads_comments_docstrings_and_sql() -> None:
    """Given all comments of the package, each of the three kinds is among them."""
    read = list(comments())

    assert any(comment.text.startswith("#") for comment in read)
    assert any(comment.file.endswith("errors.py") and "as one tree" in comment.text for comment in read)
    assert any(comment.file.endswith(".sql") for comment in read)

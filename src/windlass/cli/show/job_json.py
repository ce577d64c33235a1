"""A job as a JSON object: the same fields wherever a command prints a job with `--json`. docs/cli.md lists them."""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.model.job import Job, stored_documents


def job_document(job: Job, label: str | None = None) -> dict[str, Any]:
    """`job.document()`, with every digit of the stored numbers. `label` is the program's own name for the state."""
    stored = {name: _document(text) for name, text in stored_documents(job).items()}
    return {**job.document(), "label": label, **stored}


def _document(text: str | None) -> msgspec.Raw | str | None:
    """A stored text as the JSON document that it is, and not as a string; a text that is no JSON stays a string."""
    if text is None:
        return None
    try:
        msgspec.json.format(text)
    except (msgspec.MsgspecError, ValueError):
        return text
    return msgspec.Raw(text.encode())

"""The texts of wake-ups: a queue's name, or a message that begins with a character that no name may contain.

Any user of the database can send any text: a text that cannot be read is taken for a queue that no worker serves.
"""

from __future__ import annotations

from uuid import UUID

MARK = "\x1f"
WAKE_GATES = f"{MARK}gates"  # read the gates again
CANCEL = f"{MARK}cancel:"


def cancel_message(job: UUID) -> str:
    """A running job is to be cancelled: its worker reads the cancel requests at once, and believes only those."""
    return f"{CANCEL}{job}"


def job_to_cancel(message: str) -> UUID | None:
    """The job that a message asks to cancel; None when it is another message."""
    if not message.startswith(CANCEL):
        return None
    try:
        return UUID(message.removeprefix(CANCEL))
    except ValueError:
        return None

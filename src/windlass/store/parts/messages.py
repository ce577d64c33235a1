"""What a wake-up says: a queue's name is a message itself, and the others begin with a character that no name may have.

Anyone who may connect can send any text: what cannot be understood is a queue that no worker serves.
"""

from __future__ import annotations

from uuid import UUID

MARK = "\x1f"
WAKE_GATES = f"{MARK}gates"  # look at the gates again
CANCEL = f"{MARK}cancel:"


def cancel_message(job: UUID) -> str:
    """A running job is to be cancelled: its worker looks at once."""
    return f"{CANCEL}{job}"


def job_to_cancel(message: str) -> UUID | None:
    """The job that a message wants cancelled; None when it says something else."""
    if not message.startswith(CANCEL):
        return None
    try:
        return UUID(message.removeprefix(CANCEL))
    except ValueError:
        return None

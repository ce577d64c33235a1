"""What travels with a job: the JSON profile at the door, clean text on the way out, arguments bound to hints.

What comes in is refused when it does not fit, with the path of the place; what a handler leaves behind
(results, errors, logs) is cleaned and cut instead, because a completion must always commit.
"""

from __future__ import annotations

from windlass.payload.profile import LARGEST, check, encode
from windlass.payload.sanitise import describe, sanitise, sanitise_text
from windlass.payload.signature import Signature

__all__ = ["LARGEST", "Signature", "check", "describe", "encode", "sanitise", "sanitise_text"]

"""A program whose import goes as the environment says."""

from __future__ import annotations

import os

from windlass import Windlass

match os.environ.get("MOOD"):
    case "raise":
        raise LookupError("not today")
    case "die":
        os._exit(7)

app = Windlass()


@app.job(isolation="process")
def works() -> str:
    return "worked"

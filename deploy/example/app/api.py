"""The API: it enqueues, and `windlass worker` does the work."""

from fastapi import FastAPI

from .worker import app as windlass
from .worker import welcome

app = FastAPI(lifespan=windlass.lifespan)


@app.get("/healthz")
async def healthz() -> dict[str, bool]:
    return {"ok": True}


@app.post("/users", status_code=202)
async def register(email: str) -> dict[str, str]:
    return {"job": str((await welcome.aenqueue(email)).id)}

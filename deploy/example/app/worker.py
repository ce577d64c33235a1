"""The program of both images: `windlass worker app.worker` runs its jobs, and app/api.py enqueues them."""

from windlass import Windlass

app = Windlass()  # WINDLASS_URL and its like


@app.job(queue="mail")
async def welcome(email: str) -> str:
    return f"sent to {email}"

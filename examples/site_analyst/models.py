"""Asks a model through an endpoint that speaks OpenAI's protocol: POST {OPENAI_BASE_URL}/chat/completions."""

from __future__ import annotations

import json
import os
from typing import TypedDict

import httpx2

CENTS_PER_1000_TOKENS = float(os.environ.get("ANALYST_CENTS_PER_1000_TOKENS", "0.5"))


class Answer(TypedDict):
    """What a model said about a site."""

    model: str
    prompt: str
    summary: str
    audience: str
    tokens: int


class Unusable(Exception):
    """The model answered nothing, or something else than the JSON that it was asked for."""


async def ask_model(model: str, prompt: str) -> Answer:
    """One question, one parsed answer. An error of the endpoint is raised, and the attempt is tried again."""
    headers = {"Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', 'none')}"}
    asked = {"model": model, "messages": [{"role": "user", "content": prompt}]}
    async with httpx2.AsyncClient(base_url=os.environ["OPENAI_BASE_URL"], timeout=60) as client:
        response = await client.post("chat/completions", json=asked, headers=headers)
    response.raise_for_status()
    try:
        said = response.json()
        parsed = json.loads(said["choices"][0]["message"]["content"])
        return Answer(
            model=model,
            prompt=prompt,
            summary=_text(parsed["summary"]),
            audience=_text(parsed["audience"]),
            tokens=max(0, int(said["usage"]["total_tokens"])),
        )
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise Unusable(f"{model} did not answer as it was asked to: {type(error).__name__}: {error}") from error


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise TypeError(f"{value!r} is no text")
    return value.replace("\0", "\ufffd")  # PostgreSQL stores no NUL

"""A stand-in for a model, for demos and tests without a network. It is no model: it repeats a line of the prompt.

It speaks OpenAI's protocol. A model's name is its way: `stand-in` answers; `nonsense`, `null` and `nothing`
answer what cannot be used, `broken` accepts each question and fails the first time.
"""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class ModelServer:
    """`with ModelServer() as server:` serves at `server.url` until the block ends."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []  # models and prompts
        server = self

        class Handler(BaseHTTPRequestHandler):
            def handle(self) -> None:
                with suppress(ConnectionError):  # a worker that was killed, or had enough
                    super().handle()

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, content = server.answer(asked["model"], asked["messages"][-1]["content"])
                body = json.dumps(
                    {
                        "model": f"{asked['model']} (stand-in, no model)",
                        "choices": [{"message": {"role": "assistant", "content": content}}],
                        "usage": {"total_tokens": 1_000},
                    }
                ).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/"

    def answer(self, model: str, prompt: str) -> tuple[int, str]:
        """The status and the content of the answer."""
        is_first = (model, prompt) not in self.asked
        self.asked.append((model, prompt))
        if model == "nonsense":
            return 200, "I would rather talk about ropes."
        if model == "null":
            return 200, '{"summary": null, "audience": []}'
        if model == "nothing":
            return 200, ""
        if model == "broken" and is_first:
            return 500, ""
        return 200, json.dumps({"summary": f"Stand-in: {prompt.splitlines()[-1][:200]}", "audience": "everybody"})

    def __enter__(self) -> ModelServer:
        threading.Thread(target=self._server.serve_forever, name="model-server", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

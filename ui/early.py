"""Puts a script into the page before Gradio's own: what `launch(head=…)` names is added by Gradio's scripts, so after them."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class EarlyScript:
    """ASGI middleware: `script` becomes the first element of the head of the page at `/`."""

    def __init__(self, app: ASGIApp, script: str) -> None:
        self.app = app
        self.tag = f"<head>\n<script>\n{script}</script>".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/":
            await self.app(scope, receive, send)
            return
        start: Message = {}
        body = b""

        async def with_script(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                start = message  # its length is known when the body is
                return
            body += message.get("body", b"")
            if message.get("more_body"):
                return
            body = body.replace(b"<head>", self.tag, 1)
            others = [header for header in start["headers"] if header[0].lower() != b"content-length"]
            await send({**start, "headers": [*others, (b"content-length", str(len(body)).encode())]})
            await send({"type": "http.response.body", "body": body})

        await self.app(scope, receive, with_script)

"""The dashboard: `python app.py`, or this folder as a Gradio Space on Hugging Face."""

from __future__ import annotations

import argparse
import logging
import os
import sys

LOCAL, EVERYWHERE = "127.0.0.1", "0.0.0.0"


def parse(arguments: list[str]) -> argparse.Namespace:
    """Command line; Gradio's own GRADIO_SERVER_NAME and GRADIO_SERVER_PORT give the defaults, a Space listens to all."""
    environment = os.environ
    host = environment.get("GRADIO_SERVER_NAME") or (EVERYWHERE if environment.get("SPACE_ID") else LOCAL)
    parser = argparse.ArgumentParser(prog="python app.py", description="Dashboard of hierarchical speculative decoding.")
    parser.add_argument(
        "--host", default=host, help="address to listen on (default: %(default)s; 0.0.0.0 is every network of this machine)"
    )
    parser.add_argument("--port", type=int, default=None, help="port (default: GRADIO_SERVER_PORT, else the first free one from 7860 on)")
    parser.add_argument("--share", action="store_true", help="also open a public link through Gradio's tunnel")
    parser.add_argument("--auth", default=None, metavar="user:password", help="ask every visitor for this name and password")
    chosen = parser.parse_args(arguments)
    if chosen.auth is not None:
        user, colon, password = chosen.auth.partition(":")
        if not (colon and user and password):
            parser.error("--auth takes a name and a password with a colon between them, for example --auth anna:secret.")
        chosen.auth = (user, password)
    if chosen.port is not None and not 1 <= chosen.port <= 65535:
        parser.error(f"--port is {chosen.port}; give a number from 1 to 65535.")
    return chosen


def is_open_to_strangers(chosen: argparse.Namespace) -> bool:
    """Whether people may come who have no business with the folders of this machine."""
    elsewhere = chosen.host not in (LOCAL, "localhost", "::1")
    return chosen.share or bool(os.environ.get("SPACE_ID")) or (elsewhere and chosen.auth is None)


def main(arguments: list[str] | None = None) -> int:
    chosen = parse(sys.argv[1:] if arguments is None else arguments)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    if is_open_to_strangers(chosen):
        os.environ.setdefault("HSD_LOCAL_MODELS", "0")

    from ui import sample
    from ui.build import build, launch_options
    from ui.live import LiveEngine

    engine = LiveEngine()
    engine.warm_up()  # beside the building of the page, so that the first visitor does not wait for torch
    demo = build(engine, sample.load())
    try:
        demo.launch(
            server_name=chosen.host,
            server_port=chosen.port,
            share=chosen.share,
            auth=chosen.auth,
            prevent_thread_lock=True,
            **launch_options(),
        )
    except OSError as error:
        print(
            f"The page cannot be served at {chosen.host}:{chosen.port or ''} ({error}). Choose another --host or --port.", file=sys.stderr
        )
        return 2
    if chosen.share and not demo.share_url:
        print("No public link could be had from Gradio's tunnel; the page is served on this machine all the same.", file=sys.stderr)
    demo.block_thread()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""One paced server in its own process, which ends when its parent does: `python -m llmlesson.server.replica`.

It reads its standard input: the line "drain" drains it, and the end of the input ends it. On every system, the input
ends when the process at the other end closes it or dies, however it dies.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading

from llmlesson.server.paced import PacedBackend
from llmlesson.server.server import Server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--token-seconds", type=float, required=True)
    parser.add_argument("--prompt-seconds", type=float, required=True)
    parser.add_argument("--slots", type=int, required=True)
    args = parser.parse_args()
    server = Server(PacedBackend(args.token_seconds, args.prompt_seconds, args.slots)).start()
    print(server.url, flush=True)
    for line in sys.stdin:
        if line.strip() == "drain":
            threading.Thread(target=server.drain, daemon=True).start()
    server.stop()
    os._exit(0)  # no thread may keep it alive


if __name__ == "__main__":
    main()

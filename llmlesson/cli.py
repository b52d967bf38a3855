"""`llmlesson run | fetch | …`: reads the command line and runs one of the commands."""

from __future__ import annotations

import argparse
import errno
import io
import signal
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from importlib import import_module

from llmlesson import __version__
from llmlesson.commands import COMMANDS
from llmlesson.commands.terminal import fault_of, open_closed_streams, visible
from llmlesson.errors import LessonError


def build_parser(words: Collection[str] = COMMANDS) -> argparse.ArgumentParser:
    """The parser. Commands that `words` doesn't name are listed, but take no arguments: their modules stay unread."""
    parser = argparse.ArgumentParser(
        prog="llmlesson", description="See what happens after you send a prompt to an LLM."
    )
    parser.add_argument("--version", action="version", version=f"llmlesson {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, help_line in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=help_line)
        if name in words:
            command = import_module(f"llmlesson.commands.{name}")
            command.add_arguments(subparser)
            subparser.set_defaults(run=command.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Exit status: 0 done, 1 a LessonError (its message on stderr), 2 wrong usage, 130 Ctrl-C,
    141 the reader of the output is gone, 143 SIGTERM."""
    open_closed_streams()
    if sys.stdout is None:
        print("llmlesson: standard output is closed, so there is nowhere to write to.", file=sys.stderr)
        return 1
    # Replace characters that a dumb terminal or a Windows code page can't show, rather than fail halfway.
    if isinstance(sys.stdout, io.TextIOWrapper):  # not so in a notebook
        sys.stdout.reconfigure(errors="replace")
    # Exit as on Ctrl-C, so that an unfinished fetch is cleaned up and its pip is stopped.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        argv = sys.argv[1:] if argv is None else argv
        args = build_parser(argv).parse_args(argv)
        status = int(args.run(args))
        sys.stdout.flush()  # at exit, a failure would print a message from Python itself
        return status
    except LessonError as error:
        return failed(visible(str(error)))
    except KeyboardInterrupt:
        return 130
    except SystemExit:  # the parser, after a help text or a usage error; or SIGTERM
        if fault := fault_of(sys.stdout):
            return failed(f"can't write to standard output ({fault}).")
        raise
    except OSError as error:
        if reader_is_gone(error):
            fault_of(sys.stdout)
            return 141
        if fault := fault_of(sys.stdout, "\n"):  # nothing else tells whether it was the output that failed
            return failed(f"can't write to standard output ({fault}).")
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def failed(message: str) -> int:
    """Exit status 1, with a line on standard error if that can be written."""
    with suppress(OSError):
        print(f"llmlesson: {message}", file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        fault_of(stream)
    return 1


def reader_is_gone(error: OSError) -> bool:
    """As in `llmlesson run … | head -1`. Windows may call that an invalid argument, as it does odd names of files."""
    on_windows = sys.platform == "win32" and error.errno == errno.EINVAL and error.filename is None
    return on_windows or isinstance(error, BrokenPipeError)


if __name__ == "__main__":
    sys.exit(main())

"""What all tests share: engines, fast tests first, skips that say why, and no process left behind."""

import contextlib
import os
import signal
import uuid
from pathlib import Path

import psutil
import pytest

MARK = "LLMLESSON_TEST_RUN"
TESTS = Path(__file__).parent
SLOW = [TESTS / name for name in ("browser", "hub", "website", "resilience")] + [TESTS.parent / "notebooks"]


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in SLOW):
            item.add_marker("slow")
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device")
    if item.get_closest_marker("browser"):
        from browser.lab import CHROMIUM_NAMES, find_chromium

        if find_chromium() is None:
            pytest.skip(f"needs a Chromium on PATH ({', '.join(CHROMIUM_NAMES)})")


@pytest.fixture(scope="session")
def real():
    """The default model on the CPU in float32, loaded once: the engine that the lessons' checks use too."""
    from llmlesson.lessons.real import real_engine

    return real_engine()


@pytest.fixture(scope="session")
def tiny_pair(tmp_path_factory):
    """tiny_pair(name) -> (our engine, the transformers model) with the same random weights."""
    from engine import tiny

    import llmlesson

    pairs = {}

    def get(name):
        if name not in pairs:
            folder = tmp_path_factory.mktemp(name)
            reference = tiny.make(name, folder)
            pairs[name] = llmlesson.load(folder), reference
        return pairs[name]

    return get


def pytest_configure(config: pytest.Config) -> None:
    # Every process that a test starts inherits this, also one whose parent is gone.
    os.environ[MARK] = uuid.uuid4().hex
    # A run in the background of a shell ignores Ctrl-C, and so would every process that a test starts to interrupt it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    left = [process for process in psutil.process_iter() if process.pid != os.getpid() and is_ours(process)]
    _, left = psutil.wait_procs(left, timeout=5)
    for process in left:
        print(f"\nERROR: left running by the tests, ended now: {process.pid} {describe(process)}")
        with contextlib.suppress(psutil.Error):
            process.kill()
    if left and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def is_ours(process: psutil.Process) -> bool:
    try:
        return process.environ().get(MARK) == os.environ[MARK]
    except (psutil.Error, OSError):
        return False


def describe(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())[:200]
    except psutil.Error:
        return "(ended just now)"

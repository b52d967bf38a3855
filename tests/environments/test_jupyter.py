"""deploy/jupyter: JupyterLab's settings on Binder and in the classroom image, read by a real server."""

import asyncio
import json
import shutil
import urllib.request
from pathlib import Path

import pytest
from browser.server import run_server
from traitlets.config import PyFileConfigLoader

from llmlesson.limits import Memory

SETTINGS = Path(__file__).resolve().parents[2] / "deploy" / "jupyter"
GB = 1_000_000_000


def test_jupyterlab_opens_lesson_00_without_asking_anything(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(SETTINGS))
    (tmp_path / "home" / "notebooks").mkdir(parents=True)
    with run_server(tmp_path / "home", tmp_path) as server:
        shutil.rmtree(tmp_path / "config" / "labconfig")  # the tests' own
        request = urllib.request.Request(server.url, headers={"Authorization": f"token {server.token}"})
        with urllib.request.urlopen(request) as answer:
            page = answer.read().decode()
    assert answer.url == f"{server.url}lab/tree/notebooks/00_start_here.ipynb"
    assert (SETTINGS.parents[1] / "notebooks" / "00_start_here.ipynb").is_file()
    config = json.loads(page.partition('id="jupyter-config-data"')[2].partition(">")[2].partition("</script>")[0])
    assert config["disabledExtensions"] == ["@jupyterlab/apputils-extension:announcements"]


@pytest.fixture(scope="module")
def manager_class():
    loaded = PyFileConfigLoader("jupyter_server_config.py", path=str(SETTINGS)).load_config()
    return loaded.ServerApp.kernel_manager_class


@pytest.mark.parametrize(
    ("memory", "busy", "left"),
    [
        (2 * 2**30, False, ["new"]),  # Binder
        (2 * 2**30, True, ["old", "new"]),
        (0, False, ["new"]),  # too little even for one: that one is started all the same
        (4 * GB, False, ["old", "new"]),
        (16 * GB, False, ["older", "old", "new"]),
    ],
)
def test_old_kernels_make_room(manager_class, monkeypatch, memory, busy, left):
    monkeypatch.setitem(manager_class.start_kernel.__globals__, "usable_memory", lambda: Memory(memory, memory, True))
    running = {"old": ("2026-01-02", "busy" if busy else "idle"), "older": ("2026-01-01", "idle")}
    manager = manager_class()

    async def shut_down(kernel_id):
        del running[kernel_id]

    async def start(self):
        running["new"] = ("2026-01-03", "starting")
        return "new"

    monkeypatch.setattr(manager_class.__base__, "start_kernel", start)
    monkeypatch.setattr(manager_class, "shutdown_kernel", lambda self, kernel_id: shut_down(kernel_id))
    monkeypatch.setattr(manager_class, "list_kernel_ids", lambda self: list(running))
    monkeypatch.setattr(
        manager_class,
        "list_kernels",
        lambda self: [
            {"id": name, "last_activity": when, "execution_state": state} for name, (when, state) in running.items()
        ],
    )
    assert asyncio.run(manager.start_kernel()) == "new"
    assert sorted(running) == sorted(left)

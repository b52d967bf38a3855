"""The balancers of deploy/serving in front of two servers: what clients see, and what the servers are told."""

from __future__ import annotations

import json
import threading
import time
from contextlib import ExitStack
from itertools import pairwise

import httpx
import pytest
from proxies import FILES, Proxy, program

from llmlesson.server import Server
from llmlesson.server.paced import PacedBackend
from llmlesson.server.replicas import Replica

CHAT = "/v1/chat/completions"
TOKEN = 0.05


def body(tokens, stream=True):
    return {"messages": [{"role": "user", "content": "hello"}], "max_tokens": tokens, "stream": stream}


def settle(done, seconds=60):
    until = time.monotonic() + seconds
    while not done() and time.monotonic() < until:
        time.sleep(0.02)
    assert done()


@pytest.fixture(params=FILES)
def name(request):
    if program(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return request.param


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def setup(name, stack):
    """setup(change) -> (client of a new balancer, backends of its two servers, servers)"""

    def start(change=(), replaced=None):
        backends = [PacedBackend(TOKEN), PacedBackend(TOKEN)]
        servers = [Server(backend) for backend in backends]
        for server in servers:
            stack.enter_context(server)
        urls = [replaced.url if replaced else servers[0].url, servers[1].url]
        proxy = Proxy(name, urls, change)
        stack.callback(proxy.stop)
        client = httpx.Client(base_url=proxy.url, trust_env=False, timeout=30)
        client.proxy = proxy
        return stack.enter_context(client), backends, servers

    return start


def opened(client, stack, tokens=1000, **headers):
    """A stream that has begun: (response, its pieces)."""
    response = stack.enter_context(client.stream("POST", CHAT, json=body(tokens), headers=headers))
    assert response.status_code == 200
    pieces = response.iter_raw()
    next(pieces)
    stack.callback(id, pieces)  # a reader that nobody holds closes its response
    return response, pieces


def share_of_bursts(client):
    """Of the gaps between the events of a stream, the share that is next to nothing: they came together."""
    with client.stream("POST", CHAT, json=body(20)) as response:
        times = [time.perf_counter() for _ in response.iter_raw()]
    gaps = [after - before for before, after in pairwise(times)]
    assert len(gaps) > 10, "the events came in a few pieces"
    return sum(gap < TOKEN / 5 for gap in gaps) / len(gaps)


def test_tokens_pass_as_they_come(setup):
    client, _, _ = setup()
    assert min(share_of_bursts(client) for _ in range(2)) < 0.3


def test_without_its_line_haproxy_holds_tokens_back(setup, name):
    if name != "haproxy":
        pytest.skip("about HAProxy")
    client, _, _ = setup([("  option http-no-delay ", "  #")])
    assert share_of_bursts(client) > 0.5


def test_a_client_that_leaves_is_seen(setup):
    client, backends, _ = setup()
    with pytest.raises(httpx.ReadTimeout):
        client.post(CHAT, json=body(2000, stream=False), timeout=0.5)
    settle(lambda: not any(map(len, backends)))


def test_a_client_that_leaves_a_stream_is_seen(setup):
    client, backends, _ = setup()
    with ExitStack() as reading:
        opened(client, reading, 2000)
        assert sum(map(len, backends)) == 1
    settle(lambda: not any(map(len, backends)))


def test_without_its_line_haproxy_hides_who_left(setup, name):
    if name != "haproxy":
        pytest.skip("about HAProxy")
    client, backends, _ = setup([("  option abortonclose ", "  #")])
    with pytest.raises(httpx.ReadTimeout):
        client.post(CHAT, json=body(2000, stream=False), timeout=0.5)
    time.sleep(1)
    assert sum(map(len, backends)) == 1


def test_the_least_busy_replica_gets_the_next(setup, stack):
    """Whoever ends, the next goes there: turns would alternate."""
    client, backends, _ = setup()
    opened(client, stack)
    settle(lambda: sum(map(len, backends)) == 1)
    busy = 0 if len(backends[0]) else 1
    for _ in range(4):
        with ExitStack() as short:
            opened(client, short)
            assert [len(backends[busy]), len(backends[1 - busy])] == [1, 1]
        settle(lambda: len(backends[1 - busy]) == 0)


def test_a_session_stays_where_it_is(setup):
    client, _, _ = setup()
    places = {}
    for number in [*range(16), *range(16)]:
        answer = client.post(CHAT, json=body(1, stream=False), headers={"X-Session": f"session-{number}"})
        places.setdefault(number, set()).add(answer.headers["x-replica"])
    assert all(len(place) == 1 for place in places.values())
    assert len(set.union(*places.values())) == 2


def test_a_request_keeps_its_id_or_gets_one(setup):
    client, _, _ = setup()
    short = body(1, stream=False)
    assert client.post(CHAT, json=short, headers={"X-Request-Id": "mine-7"}).headers["x-request-id"] == "mine-7"
    given = [client.post(CHAT, json=short).headers["x-request-id"] for _ in range(2)]
    assert given[0] != given[1]
    assert not any(one.startswith("chatcmpl") for one in given), "the balancer names it, so that its log can too"


def test_a_long_prompt_passes(setup):
    client, _, _ = setup()
    long = {"messages": [{"role": "user", "content": "x" * 2_000_000}], "max_tokens": 1}
    assert client.post(CHAT, json=long).status_code == 200


def test_draining_sends_new_requests_elsewhere_and_lets_old_ones_end(setup, stack, name):
    client, backends, servers = setup()
    _, pieces = opened(client, stack, 60)
    here = 0 if len(backends[0]) else 1
    drained = threading.Thread(target=servers[here].drain)
    drained.start()
    there = httpx.Client(base_url=servers[here].url, trust_env=False)
    settle(lambda: there.get("/health").status_code == 503)
    first = client.post(CHAT, json=body(1, stream=False))
    if name == "caddy" and first.status_code == 503:  # it passes the first refusal on, and then knows
        assert first.headers["retry-after"] == "1"
    else:
        assert first.status_code == 200
    others = [client.post(CHAT, json=body(1, stream=False)) for _ in range(4)]
    assert [(answer.status_code, answer.headers["x-replica"]) for answer in others] == [
        (200, others[0].headers["x-replica"])
    ] * 4
    rest = b"".join(pieces)
    assert b'"finish_reason":"length"' in rest
    assert rest.endswith(b"data: [DONE]\n\n")
    drained.join(20)
    there.close()


def test_a_killed_replica_cuts_its_streams_and_no_others(setup, stack):
    replica = Replica(TOKEN)
    stack.callback(replica.stop)
    client, backends, _ = setup(replaced=replica)
    streams = [opened(client, stack, 40) for _ in range(2)]
    places = [response.headers["x-replica"] for response, _ in streams]
    assert len(set(places)) == 2
    assert len(backends[1]) == 1
    replica.kill()
    ends = {}
    for place, (_, pieces) in zip(places, streams, strict=True):
        read = []
        try:
            for piece in pieces:
                read.append(piece)
            ends[place] = b"".join(read).endswith(b"data: [DONE]\n\n")
        except httpx.RemoteProtocolError:
            ends[place] = False
    survivor = client.post(CHAT, json=body(1, stream=False)).headers["x-replica"]
    assert ends == {place: place == survivor for place in places}
    assert [client.post(CHAT, json=body(1, stream=False)).status_code for _ in range(6)] == [200] * 6


def test_with_all_replicas_down_the_balancer_says_so_in_its_own_way(setup):
    client, _, servers = setup()
    for server in servers:
        server.stop()
    for _ in range(3):
        answer = client.post(CHAT, json=body(1))
        assert answer.status_code in (502, 503)
        with pytest.raises(json.JSONDecodeError):
            answer.json()


def test_haproxy_exports_metrics(setup, name):
    if name != "haproxy":
        pytest.skip("about HAProxy")
    client, _, _ = setup()
    client.post(CHAT, json=body(1, stream=False))
    text = httpx.get(f"{client.proxy.metrics_url}/metrics", trust_env=False).text
    assert 'haproxy_server_status{proxy="replicas",server="a",state="UP"} 1' in text
    assert "haproxy_backend_current_queue" in text

"""The access log: one id all the way, times in order, and the picture of one request."""

from __future__ import annotations

import json
import re
import time

import httpx
import pytest

from llmlesson import cli
from llmlesson.errors import LessonError
from llmlesson.server import Server, loadtest
from llmlesson.server.exchange import Exchange
from llmlesson.server.paced import PacedBackend
from llmlesson.views.journey import journey

CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "a1 b"}], "max_tokens": 5}


def post(server, body=BODY, **headers):
    return httpx.post(server.url + CHAT, json=body, headers=headers, trust_env=False)


def logged(server, count):
    """The log once it has so many entries: one is written after its client has the answer."""
    until = time.monotonic() + 20
    while len(server.log) < count and time.monotonic() < until:
        time.sleep(0.01)
    assert len(server.log) == count
    return server.log


def in_order(entry, choice):
    return [0.0, choice["queued"], choice["started"], *choice["tokens"], entry["sent"][1], entry["seconds"]]


@pytest.mark.parametrize("stream", [False, True])
def test_an_id_goes_all_the_way_and_the_times_are_in_order(server, stream):
    response = post(server, {**BODY, "stream": stream, "ignore_eos": True}, **{"X-Request-Id": "from a client"})
    assert response.headers.get_list("x-request-id") == ["from a client"]
    [entry] = logged(server, 1)
    assert (entry["id"], entry["status"], entry["path"], entry["method"]) == ("from a client", 200, CHAT, "POST")
    [choice] = entry["choices"]
    assert (len(choice["tokens"]), choice["finish_reason"]) == (5, "length")
    assert (
        choice["prompt_tokens"]
        == httpx.post(f"{server.url}/tokenize", json={"messages": BODY["messages"]}, trust_env=False).json()["count"]
    )
    assert in_order(entry, choice) == sorted(in_order(entry, choice))


@pytest.mark.parametrize("given", ["", "a\x01b", "\xe9", "x" * 500])
def test_ids_are_safe_and_unique(paced, given):
    server = paced()
    ids = [post(server, **{"X-Request-Id": given.encode("latin-1")}).headers["x-request-id"] for _ in range(2)]
    assert all(re.fullmatch(r"[ -~]{1,200}", one) for one in ids)
    assert given[:200] == ids[0] or ids[0] != ids[1]


def test_a_queue_is_seen_and_every_choice(paced):
    server = paced(0.02, slots=1)
    post(server, {**BODY, "n": 2})
    [entry] = logged(server, 1)
    first, second = entry["choices"]
    assert second["started"] >= first["tokens"][-1] - 1e-6
    assert second["queued"] <= first["tokens"][0]


def test_refusals_and_those_who_left_are_logged_and_health_checks_are_not(paced):
    server = paced(0.05, api_key="secret")
    assert post(server).headers["x-request-id"]
    with httpx.stream(
        "POST", server.url + CHAT, json={**BODY, "max_tokens": 500, "stream": True},
        headers={"Authorization": "Bearer secret"}, trust_env=False,
    ) as response:  # fmt: skip
        next(response.iter_raw())
    httpx.get(f"{server.url}/health", trust_env=False)
    httpx.get(f"{server.url}/health", headers={"Host": "evil.example"}, trust_env=False)
    httpx.get(f"{server.url}/nothing", trust_env=False)
    entries = {(entry["path"], entry["status"]): entry for entry in logged(server, 3)}
    assert set(entries) == {(CHAT, 401), (CHAT, 200), ("/nothing", 404)}
    assert [choice["finish_reason"] for choice in entries[CHAT, 200]["choices"]] == ["cancelled"]


def test_a_file_gets_a_line_for_each_and_its_folder_must_exist(tmp_path):
    file = tmp_path / "access.jsonl"
    for _ in range(2):
        with Server(PacedBackend(0.001), access_log=file) as server:
            post(server)
            post(server, {"messages": 5})
            kept = logged(server, 2)
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [line["status"] for line in lines] == [200, 400] * 2
    assert lines[2:] == kept
    with pytest.raises(LessonError, match=r"access log .* can't be written"):
        Server(PacedBackend(), access_log=tmp_path / "none" / "x")
    assert cli.main(["serve", "--engine", "paced", "--port", "0", "--access-log", str(tmp_path)]) == 1


def test_one_request_is_drawn_from_client_to_last_token(paced):
    server = paced(0.01)
    load = loadtest.run(server.url, requests=2, clients=1, max_tokens=4)
    entries = {entry["id"]: entry for entry in logged(server, 3)}  # with the question which models there are
    one, other = load.exchanges
    html = journey(entries[one.request_id], one)
    assert len(re.findall(r'<rect [^>]*class="f-prompt"', html)) == 1
    assert len(re.findall(r'<rect [^>]*class="f-answer"', html)) == 3 + 1  # decode steps, and the stream
    [marks] = re.findall(r'<path d="([^"]*)" class="s-answer"', html)
    assert marks.count("M") == 4
    for stage in ("tokenize", "queue", "prefill", "decode", "stream", "network"):
        assert stage in html
    assert "network" not in journey(entries[one.request_id])
    with pytest.raises(ValueError, match="the log is of"):
        journey(entries[one.request_id], other)


ENTRY = {
    "id": "<7>", "time": 0.0, "method": "POST", "path": CHAT, "status": 200, "seconds": 2.0, "sent": [1.0, 2.0],
    "choices": [
        {"prompt_tokens": 9, "finish_reason": "cancelled", "queued": 0.1, "started": 0.6, "tokens": [1.0, 1.4, 1.9]}
    ],
}  # fmt: skip


def test_the_pictures_numbers_are_the_logs():
    html = journey(ENTRY, Exchange(5.0, [6.1, 6.6, 7.2], 7.4, 3, "abc", "", "<7>"))
    told = ("tokenize 100 ms", "queue 500 ms", "prefill 400 ms", "decode 900 ms", "stream 100 ms", "network 400 ms")
    assert all(words in html for words in told)
    assert "✗ cancelled" in html
    assert "&lt;7&gt;" in html
    assert "<7>" not in html
    prefill = re.search(r'<rect x="([0-9.]+)"[^>]*width="([0-9.]+)"[^>]*class="f-prompt"', html)
    scale = 760 / 2.4
    assert float(prefill[1]) == pytest.approx(116 + (0.6 + 0.2) * scale, abs=0.1)  # 0.2 s on the way there
    assert float(prefill[2]) == pytest.approx(0.4 * scale, abs=0.1)
    with pytest.raises(ValueError, match="has no answer: status 200"):
        journey({**ENTRY, "choices": []})

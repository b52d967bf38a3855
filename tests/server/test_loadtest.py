"""The load test: what it computes from known times, what it reads off a stream, and whole runs against real servers."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import signal
import subprocess
import sys
import time

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmlesson import cli
from llmlesson.errors import LessonError
from llmlesson.server import loadtest
from llmlesson.server.exchange import CUT, Exchange, exchange
from llmlesson.server.loadtest import Load
from llmlesson.server.sse import EventReader, event
from llmlesson.views.arrivals import raster

SLOW = Exchange(sent=0.0, arrivals=[3.0, 3.5, 4.5], ended=5.0, tokens=4)  # one of its tokens had no text
QUICK = Exchange(sent=1.0, arrivals=[1.25], ended=1.25, tokens=1)
BROKEN = Exchange(sent=2.0, arrivals=[2.5, 9.0], ended=9.0, tokens=2, error=CUT)


def test_times_of_one_request():
    assert (SLOW.ttft, SLOW.gaps, SLOW.tpot, SLOW.latency) == (3.0, [0.5, 1.0], 0.5, 5.0)
    assert (QUICK.ttft, QUICK.gaps, QUICK.latency) == (0.25, [], 0.25)
    assert math.isnan(QUICK.tpot)
    assert math.isnan(Exchange(sent=0.0).ttft)


def test_times_of_a_load():
    load = Load([SLOW, QUICK, BROKEN], max_ttft=1.0)
    assert (load.answered, load.failed, load.seconds) == ([SLOW, QUICK], [BROKEN], 9.0)
    assert (load.ttft.mean, load.ttft.p50, load.ttft.most) == (1.625, 0.25, 3.0)
    assert (load.itl.mean, load.tpot.mean, load.latency.p99) == (0.75, 0.5, 5.0)
    assert (load.requests_per_second, load.tokens_per_second) == (2 / 9, 5 / 9)
    assert load.goodput == 1 / 9
    assert Load([SLOW, QUICK], max_tpot=0.4).goodput == 1 / 5  # an answer of one token keeps any TPOT
    assert Load([SLOW, QUICK]).goodput == 2 / 5


def test_a_gap_counts_once_and_an_answer_once():
    """ITL is over gaps, TPOT over requests: a long slow answer weighs more in the first."""
    long = Exchange(sent=0.0, arrivals=[0.0, 2.0, 4.0, 6.0, 8.0], ended=8.0, tokens=5)
    short = Exchange(sent=0.0, arrivals=[0.0, 1.0], ended=1.0, tokens=2)
    load = Load([long, short])
    assert (load.itl.mean, load.tpot.mean) == (9 / 5, 3 / 2)


def test_json_holds_no_nan_and_the_text_all_numbers():
    load = Load([QUICK, BROKEN], max_ttft=0.5)
    body = json.loads(json.dumps(load.to_json(), allow_nan=False))
    assert (body["itl"]["p50"], body["limits"]) == (None, {"ttft": 0.5, "tpot": None})
    assert [one["error"] for one in body["exchanges"]] == ["", CUT]
    assert "2 requests in 8.00 s: 1 answered, 1 failed" in str(load)
    assert "with TTFT ≤ 0.5 s" in str(load)
    assert f"failed 1 ×: {CUT}" in str(load)


def chunk(text=None, reason=None, **more):
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}], **more})


ROLE = event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
USAGE = event({"choices": [], "usage": {"completion_tokens": 3}})


def answered(pieces, status=200, headers=None):
    """What `exchange` makes of a response whose pieces arrive a second apart, the first after a second."""
    now = 0.0

    async def stream():
        nonlocal now
        for piece in pieces:
            now += 1.0
            if isinstance(piece, Exception):
                raise piece
            yield piece

    def respond(request):
        body = json.loads(request.content)
        assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})
        return httpx.Response(status, content=stream(), headers=headers)

    async def ask():
        transport = httpx.MockTransport(respond)
        async with httpx.AsyncClient(transport=transport, base_url="http://x/v1") as client:
            return await exchange(client, {"messages": []}, lambda: now)

    return asyncio.run(ask())


def test_a_stream_on_a_clock():
    seen = answered([ROLE, chunk("a"), chunk("b"), chunk(reason="stop"), USAGE], headers={"X-Request-Id": "7"})
    assert seen == Exchange(0.0, [2.0, 3.0], 5.0, 3, "ab", "", "7", status=200)
    assert (seen.ttft, seen.gaps, seen.tpot) == (2.0, [1.0], 0.5)


def test_without_usage_texts_are_counted():
    assert answered([chunk("a"), chunk("b"), chunk("c", "length")]).tokens == 3


def test_a_hop_that_buffers_shows_as_gaps_of_nothing():
    assert answered([chunk("a") + chunk("b") + chunk("c", "stop")]).gaps == [0.0, 0.0]


@pytest.mark.parametrize(
    ("pieces", "status", "error"),
    [
        ([chunk("a"), b"data: [DONE]\n\n"], 200, CUT),
        ([chunk("a"), event({"error": {"message": "out of luck"}}), b"data: [DONE]\n\n"], 200, "out of luck"),
        ([chunk("a"), httpx.ReadError("reset")], 200, "ReadError: reset"),
        ([b"data: {\n\n"], 200, "JSONDecodeError"),
        ([], 200, CUT),
        ([b'{"error": {"message": "The queue is full."}}'], 429, "status 429: The queue is full."),
        ([b"<html>\n<h1>503 Service Unavailable</h1>"], 503, "status 503: <html> <h1>503 Service Unavailable</h1>"),
        ([], 502, "status 502: Bad Gateway"),
    ],
)
def test_what_is_no_whole_answer_says_why(pieces, status, error):
    assert answered(pieces, status).error.startswith(error)


def test_the_reader_takes_all_that_the_format_allows():
    """Comments, other fields, CRLF, no blank after the colon, several data lines; U+2028 ends no line."""
    raw = ': ping\r\nid: 1\r\ndata: {"a"\r\ndata::1}\r\n\r\nretry: 5\n\ndata:x\u2028y\n\n'.encode()
    assert EventReader().feed(raw) == ['{"a"\n:1}', "x\u2028y"]


@given(st.lists(st.text(max_size=8), max_size=4), st.data())
def test_the_reader_takes_bytes_wherever_they_are_cut(texts, data):
    raw = b"".join(event(text).replace(b"\n", data.draw(st.sampled_from([b"\n", b"\r\n"]))) for text in texts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    reader = EventReader()
    pieces = [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert [json.loads(text) for piece in pieces for text in reader.feed(piece)] == texts


def test_a_closed_loop_against_a_server_that_keeps_time(paced):
    server = paced(token_seconds=0.01)
    load = loadtest.run(server.url, requests=6, clients=2, max_tokens=[3, 5])
    assert not load.failed
    assert [one.tokens for one in load.exchanges] == [len(one.arrivals) for one in load.exchanges]
    assert sorted(one.tokens for one in load.exchanges) == [3, 3, 3, 5, 5, 5]
    assert len({one.request_id for one in load.exchanges}) == 6
    for one in load.exchanges:
        assert one.arrivals[-1] - one.sent >= 0.01 * one.tokens  # a step takes at least as long as it is told to
    for at in (one.sent for one in load.exchanges):
        assert sum(one.sent <= at < one.ended for one in load.exchanges) <= 2


def test_an_open_loop_does_not_wait_for_answers(paced):
    """One answer at a time, and far more requests than it can serve: all are sent before most are answered."""
    server = paced(token_seconds=0.02, slots=1)
    load = loadtest.run(server.url + "/v1", requests=8, rate=1e6, max_tokens=10)
    assert not load.failed
    assert max(one.sent for one in load.exchanges) < sorted(one.ended for one in load.exchanges)[-2]


def test_a_real_engine_and_headers(server):
    load = loadtest.run(server.url, requests=4, clients=4, max_tokens=6, prompt_words=3, ignore_eos=True)
    assert [(one.tokens, one.error) for one in load.exchanges] == [(6, "")] * 4


def test_refusals_are_counted(paced):
    server = paced(0.05, queue=1, api_key="secret")
    load = loadtest.run(server.url, requests=3, rate=1e6, max_tokens=20, api_key="secret")
    assert [one.error for one in load.failed] == ["status 429: The queue is full."] * 2
    with pytest.raises(LessonError, match="API key is missing"):
        loadtest.run(server.url, requests=1, clients=1)
    load = loadtest.run(server.url, requests=1, clients=1, model="paced", api_key="wrong")
    assert "status 401" in load.exchanges[0].error


def test_from_a_thread_with_a_loop_as_in_a_notebook(paced):
    url = paced().url

    async def cell():
        return loadtest.run(url, requests=1, clients=1, max_tokens=2)

    assert not asyncio.run(cell()).failed


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one child")
def test_an_interrupt_ends_the_requests(paced):
    server = paced(0.05)
    command = [sys.executable, "-m", "llmlesson.cli", "loadtest", server.url, "--max-tokens", "4000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
    try:
        wait_for_running(server.url, 4.0)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60) == ("", "")
        assert process.returncode == 130
        wait_for_running(server.url, 0.0)
    finally:
        process.kill()


def wait_for_running(url, count):
    until = time.monotonic() + 60
    line = f'llmlesson_num_requests_running{{model_name="paced"}} {count}'
    while line not in httpx.get(f"{url}/metrics", trust_env=False).text:
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "how many clients"),
        ({"clients": 1, "rate": 1.0}, "how many clients"),
        ({"clients": 0}, "clients must be at least 1"),
        ({"rate": 0.0}, "rate is 0.0"),
        ({"clients": 1, "requests": 0}, "requests must be at least 1"),
        ({"clients": 1, "max_tokens": []}, "max_tokens must be at least 1"),
        ({"clients": 1, "url": "nowhere"}, "is no address"),
        ({"clients": 1, "url": "http://127.0.0.1:9"}, "No server answers"),
    ],
)
def test_settings_that_make_no_sense(change, message):
    with pytest.raises(LessonError, match=message):
        loadtest.run(**{"url": "http://127.0.0.1:9", "requests": 1, **change})


def test_the_command(paced, capsys, tmp_path):
    server, picture = paced(), tmp_path / "raster.html"
    arguments = ["loadtest", server.url, "--requests", "3", "--rate", "500", "--max-tokens", "2"]
    assert cli.main([*arguments, "--raster", str(picture), "--max-ttft", "60"]) == 0
    assert capsys.readouterr().out.startswith("3 requests in ")
    assert picture.read_text(encoding="utf-8").count("<svg") == 1
    assert cli.main([*arguments, "--json", "--max-tokens", "5000"]) == 1
    body = json.loads(capsys.readouterr().out)
    assert (body["failed"], body["ttft"]["mean"]) == (3, None)
    assert "context is 4,096 tokens" in body["exchanges"][0]["error"]
    assert cli.main([*arguments, "--raster", str(tmp_path / "none" / "x.html")]) == 1
    assert "There is no folder" in capsys.readouterr().err


def test_the_raster_has_a_tick_for_each_arrival():
    html = raster([SLOW, QUICK, BROKEN], ["a", "b", "<c>"])
    ticks = [len(re.findall("M", path)) for path in re.findall(r'<path d="([^"]*)" class="s-answer"', html)]
    assert ticks == [3, 1, 2]
    assert html.count("✗") == 2  # at the end of the row, and in the note
    assert raster([SLOW]).count("✗") == 0
    assert "&lt;c&gt;" in html
    assert "3 requests in 9.00 s; 6 pieces of text arrived." in html
    with pytest.raises(ValueError, match="0 requests"):
        raster([])
    assert raster([SLOW] * 300).count("request 299") == 1  # in the table; the picture has no room for each name

"""The containers of deploy/serving, as far as they can be checked without Docker."""

from __future__ import annotations

import json
import re
import subprocess
from argparse import ArgumentParser

import httpx
import pytest
import yaml
from proxies import SERVING, Proxy, program

from llmlesson.commands import serve
from llmlesson.server import Server
from llmlesson.server.paced import PacedBackend

COMPOSE = yaml.safe_load((SERVING / "compose.yaml").read_text(encoding="utf-8"))
SERVICES = COMPOSE["services"]


def test_all_share_one_network_and_only_this_machine_reaches_it():
    for name, service in SERVICES.items():
        assert (name == "haproxy") != (service.get("network_mode") == "service:haproxy")
        assert ("ports" in service) == (name == "haproxy")
    assert all(port.startswith("127.0.0.1:") for port in SERVICES["haproxy"]["ports"])


def test_what_is_mounted_is_there():
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            assert (SERVING / volume.split(":")[0]).is_file(), volume


def test_images_are_pinned():
    for name, service in SERVICES.items():
        assert service["image"] == "llmlesson" or re.fullmatch(
            r"[\w/]+:v?\d+\.\d+(\.\d+)?(-alpine)?", service["image"]
        ), name


def test_replicas_are_started_as_the_command_takes_it_where_all_look_for_them():
    haproxy = (SERVING / "haproxy.cfg").read_text(encoding="utf-8")
    scraped = yaml.safe_load((SERVING / "prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in scraped}
    parser = ArgumentParser()
    serve.add_arguments(parser)
    addresses = []
    for name in ("replica-a", "replica-b"):
        program, command, *arguments = SERVICES[name]["command"]
        assert (program, command) == ("llmlesson", "serve")
        addresses.append(f"127.0.0.1:{parser.parse_args(arguments).port}")
    assert targets == {"replicas": addresses, "haproxy": ["127.0.0.1:8404"]}
    assert all(f" {address}\n" in haproxy for address in addresses)


def test_haproxy_takes_both_of_its_files(tmp_path):
    if program("haproxy") is None:
        pytest.skip("haproxy is not installed")
    published = tmp_path / "published.cfg"
    published.write_text(COMPOSE["configs"]["published"]["content"], encoding="utf-8")
    command = [program("haproxy"), "-c", "-f", str(SERVING / "haproxy.cfg"), "-f", str(published)]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    assert "WARNING" not in checked.stderr


def expressions():
    dashboard = json.loads((SERVING / "grafana" / "dashboard.json").read_text(encoding="utf-8"))
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def test_the_dashboard_asks_for_metrics_that_are_there(tmp_path):
    with Server(PacedBackend(0.001)) as server, httpx.Client(trust_env=False) as client:
        body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
        assert client.post(f"{server.url}/v1/chat/completions", json=body).status_code == 200
        known = client.get(f"{server.url}/metrics").text
        if program("haproxy"):
            proxy = Proxy("haproxy", [server.url, server.url])
            try:
                known += client.get(f"{proxy.metrics_url}/metrics").text
            finally:
                proxy.stop()
    names = set(re.findall(r"^(\w+)[{ ]", known, re.MULTILINE))
    labels = set(re.findall(r"[{,](\w+)=", known)) | {"instance"}
    asked = {name for text in expressions() for name in re.findall(r"\b((?:llmlesson|haproxy)_\w+)", text)}
    assert {name for name in asked if name.startswith("llmlesson") or program("haproxy")} <= names
    assert len(asked) > 8
    for text in expressions():
        assert text.count("(") == text.count(")")
        for group in re.findall(r"by \(([^)]*)\)", text):
            assert set(group.split(", ")) <= labels


def test_the_balancer_for_learners_has_a_hash_for_every_system():
    text = (SERVING.parents[1] / "requirements-balancer.txt").read_text(encoding="utf-8")
    packages = re.split(r"\n(?=\w)", text)[1:]
    assert len(packages) == 2
    for package in packages:
        assert re.search(r"==[\d.]+; sys_platform [!=]= \"win32\"", package)
        assert package.count("--hash=sha256:") >= 2

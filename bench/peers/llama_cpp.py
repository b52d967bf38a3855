"""Our server beside llama.cpp's, with the same weights, the same client and the same load, in turns.

    python bench/peers/llama_cpp.py

llama.cpp comes as a wheel, into an environment of its own (in the user's cache folder; 0.1 GB, and 1 GB for the weights
in four formats). The first time, that needs the network. Q4_1 is the course's model as it was published; the other
formats are written from it, so all hold the same numbers.

Each round gives each server one client that waits for each answer, then --clients of them. CPU seconds are those of
the server's process, which other work on the machine disturbs least. While a server works, the others are stopped.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import date
from pathlib import Path

import numpy as np
import platformdirs
import psutil
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.quants import dequantize, quantize

from llmlesson.benchmark.report import markdown_table
from llmlesson.files.download import SMOLLM2_135M, download
from llmlesson.server import loadtest

WHEEL = "xllamacpp==2026.10.11549"  # llama.cpp with its server; MIT
OURS = ("float32", "int8", "int4")
THEIRS = ("F32", "F16", "Q8_0", "Q4_1")

# Runs in llama.cpp's environment: prints its address, then serves until its standard input ends.
SERVE = """
import sys, xllamacpp
model, threads, slots, context = sys.argv[1], *map(int, sys.argv[2:])
params = xllamacpp.CommonParams()
params.model.path = model
params.n_parallel, params.n_ctx = slots, slots * context
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
params.cache_ram_mib = 0
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


def environment(folder: Path) -> Path:
    """The Python of llama.cpp's environment, made at first."""
    python = folder / "venv" / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", WHEEL], check=True)
    return python


def weights(folder: Path, kind: str) -> Path:
    """The model in this format, made at first."""
    published = next(folder.glob("published/**/*.gguf"), None)
    if published is None:
        (folder / "published").mkdir(parents=True, exist_ok=True)
        published = download(SMOLLM2_135M, folder / "published")
    if kind == "Q4_1":
        return published
    path = folder / f"{kind}.gguf"
    if not path.exists():
        convert(published, path.with_suffix(".part"), GGMLQuantizationType[kind])
        path.with_suffix(".part").rename(path)
    return path


def convert(source: Path, target: Path, kind: GGMLQuantizationType) -> None:
    """Write the model again, with all its matrices in another format; vectors stay float32."""
    reader = GGUFReader(source)
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.file_type"):
            part = field.types[1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], part)
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        to = kind if values.ndim > 1 else GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, quantize(values, to), raw_dtype=to)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Served:
    """A server in its own process."""

    def __init__(self, name: str, process: subprocess.Popen[str], url: str) -> None:
        self.name, self.url = name, url
        self._process = psutil.Process(process.pid)

    def cpu_seconds(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

    @contextmanager
    def alone(self, all_servers: list[Served]) -> Iterator[None]:
        """Stops all others for a while."""
        others = [other for other in all_servers if other is not self]
        for other in others:
            other._process.suspend()
        try:
            yield
        finally:
            for other in others:
                other._process.resume()


@contextmanager
def started(name: str, command: list[str], threads: int) -> Iterator[Served]:
    """A server that prints its address as the last word of a line."""
    process = subprocess.Popen(
        command,
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        while "http" not in (line := process.stdout.readline()):
            if not line:
                raise SystemExit(f"{name} did not start: {' '.join(command)}")
        yield Served(name, process, line.split()[-1].removesuffix("/v1"))
    finally:
        psutil.Process(process.pid).resume()
        process.terminate()
        process.wait()


def one_load(server: Served, clients: int, args: argparse.Namespace, seed: int) -> dict[str, float]:
    before = server.cpu_seconds()
    load = loadtest.run(
        server.url,
        requests=args.requests if clients > 1 else max(2, args.requests // 4),
        clients=clients,
        max_tokens=args.max_tokens,
        prompt_words=args.prompt_words,
        ignore_eos=True,
        seed=seed,
    )
    if load.failed:
        raise SystemExit(f"{server.name}: {load.failed[0].error}")
    tokens = sum(one.tokens for one in load.answered)
    return {
        "tokens/s": load.tokens_per_second,
        "TTFT ms": 1000 * load.ttft.p50,
        "TPOT ms": 1000 * load.tpot.p50,
        "CPU ms a token": 1000 * (server.cpu_seconds() - before) / tokens,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(platformdirs.user_cache_dir("llmlesson-peers", False)))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--prompt-words", type=int, default=32)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    python = environment(args.folder)
    slots, context = max(args.clients), args.prompt_words * 2 + args.max_tokens + 64
    ours = [sys.executable, "-m", "llmlesson.cli", "serve", "--port", "0", "--max-running", str(slots), "--dtype"]
    with ExitStack() as stack:
        commands = {f"llmlesson {dtype}": [*ours, dtype] for dtype in OURS}
        for kind in THEIRS:
            sizes = map(str, (args.threads, slots, context))
            commands[f"llama.cpp {kind}"] = [str(python), "-c", SERVE, str(weights(args.folder, kind)), *sizes]
        servers = [stack.enter_context(started(name, command, args.threads)) for name, command in commands.items()]
        found: dict[tuple[str, int], list[dict[str, float]]] = {}
        for number in range(args.rounds + 1):  # the first one warms up
            for server in servers:
                for clients in args.clients:
                    with server.alone(servers):
                        time.sleep(0.2)
                        result = one_load(server, clients, args, seed=1000 * number + clients)
                    if number:
                        found.setdefault((server.name, clients), []).append(result)
    print(f"## {date.today().isoformat()}: our server beside llama.cpp's, {args.threads} thread(s)\n")
    print(
        f"Prompts of {args.prompt_words} words, answers of {args.max_tokens} tokens, over HTTP; {args.requests} "
        f"requests with {max(args.clients)} clients. Medians of {args.rounds} rounds in turns.\n"
    )
    heads = ["server", "clients", *next(iter(found.values()))[0]]
    lines = [
        [name, str(clients), *(f"{statistics.median(one[what] for one in results):.1f}" for what in heads[2:])]
        for (name, clients), results in found.items()
    ]
    print(markdown_table(heads, lines))


if __name__ == "__main__":
    main()

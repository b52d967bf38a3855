"""`llmlesson size MODEL`: how large the KV cache gets, and whether it fits."""

from __future__ import annotations

import argparse
import json
from typing import Any

from llmlesson.commands.terminal import visible
from llmlesson.errors import LessonError
from llmlesson.sizing.conventions import CONVENTIONS
from llmlesson.sizing.dtypes import DTYPES, FLOATS
from llmlesson.sizing.meta_device import MEASURABLE, measure
from llmlesson.sizing.models import model_table
from llmlesson.sizing.planning import Plan, fit, gpu_table
from llmlesson.sizing.result import KVCacheSize
from llmlesson.sizing.size import kv_cache
from llmlesson.sizing.tables import compare_table, kinds
from llmlesson.sizing.units import SUFFIX_HELP, both_units, gigabytes, parse_tokens

# A measured model with linear layers runs a loop over tokens in transformers' reference code.
VERIFY_TOKENS_WITH_STATES = 128


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "How large a model's KV cache gets, in exact bytes."
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        f"models in the table: {', '.join(name.rpartition('/')[2] for name in model_table())}\n\n"
        f"GPUs: {', '.join(gpu_table())}\n\nnumbers of tokens: {SUFFIX_HELP}."
    )
    parser.add_argument("model", nargs="?", help="a name in the table, a folder, a config.json or a hub id")
    parser.add_argument("--compare", nargs="+", metavar="MODEL", help="several models in one table")
    parser.add_argument("--tokens", default="8192", metavar="N", help="context: 4096, 128k, 128Ki, 1M (default: 8192)")
    parser.add_argument("--batch", type=int, default=1, metavar="N", help="sequences at once (default: 1)")
    parser.add_argument("--dtype", default="bf16", help=f"of keys and values: {', '.join(DTYPES)} (default: bf16)")
    parser.add_argument("--convention", default="ideal", help=f"{', '.join(CONVENTIONS)} (default: ideal)")
    parser.add_argument("--tp", type=int, default=1, metavar="N", help="tensor-parallel ranks; sizes are one rank's")
    parser.add_argument("--cross-tokens", metavar="N", help="encoder or image tokens, for models with cross-attention")
    parser.add_argument(
        "--gpu", metavar="NAME", help="also say whether it fits, for how many users, and how fast at most"
    )
    parser.add_argument("--weights-dtype", default="bf16", help="of the weights, for --gpu (default: bf16)")
    parser.add_argument("--explain", action="store_true", help="show the arithmetic with the numbers filled in")
    parser.add_argument("--verify", action="store_true", help="compare with transformers' own cache, layer by layer")
    parser.add_argument("--json", action="store_true", help="print only JSON")


def run(args: argparse.Namespace) -> int:
    """Exit status 0; 1 if --verify finds a layer that differs."""
    names = args.compare or []
    if bool(args.model) == bool(names):
        raise LessonError("Name one model, or several after --compare: llmlesson size Qwen3-0.6B --tokens 128k.")
    if names and (args.gpu or args.explain or args.verify):
        raise LessonError("--gpu, --explain and --verify work with one model: leave --compare out.")
    sizes = [_size(args, name) for name in names or [args.model]]
    plan = fit(args.model, args.gpu, args.weights_dtype, args.dtype, sizes[0].tokens, args.tp) if args.gpu else None
    checked = verify(args.model, sizes[0]) if args.verify else None
    if args.json:
        found = [to_json(size) for size in sizes]
        extra = {**({"gpu": plan_json(plan)} if plan else {}), **({"verified": checked} if checked else {})}
        print(json.dumps(found if names else {**found[0], **extra}, indent=1))
    elif names:
        print(_title(args, sizes[0], "these models"))
        print(visible(compare_table(sizes)))
        _print_notes(sizes)
    else:
        print(visible(sizes[0].explain() if args.explain else summary(args, sizes[0])))
        for text in (plan.explain() if plan else None, _checked_text(checked) if checked else None):
            if text:
                print("", text, sep="\n")
    return 1 if checked and checked["differing_layers"] else 0


def _size(args: argparse.Namespace, name: str) -> KVCacheSize:
    cross = parse_tokens(args.cross_tokens) if args.cross_tokens else None
    tokens = parse_tokens(args.tokens)
    return kv_cache(name, tokens, args.batch, args.dtype, args.convention, tp=args.tp, cross_tokens=cross)


def summary(args: argparse.Namespace, size: KVCacheSize) -> str:
    """The answer in a few lines."""
    lines = [
        _title(args, size, size.name),
        f"  cache      {size.nbytes:,} bytes = {gigabytes(size.nbytes)}",
        f"  per token  {size.bytes_per_token:,} bytes ({both_units(size.bytes_per_token)}) for each sequence",
    ]
    if size.marginal_bytes_per_token != size.bytes_per_token:
        lines.append(f"             {size.marginal_bytes_per_token:,} bytes once all windows are full")
    if size.fixed_nbytes:
        lines.append(f"  fixed      {size.fixed_nbytes:,} bytes ({both_units(size.fixed_nbytes)}) whatever the context")
    lines += [f"  layers     {kinds(size)}", *(f"  note       {note}" for note in size.notes)]
    return "\n".join(lines)


def _title(args: argparse.Namespace, size: KVCacheSize, name: str) -> str:
    """The question, with the number of tokens as we understood it."""
    meant = "" if args.tokens.strip().isdigit() else f" ({args.tokens}; k and M decimal, Ki and Mi binary)"
    rank = f", one of {size.tp} ranks" if size.tp > 1 else ""
    batch = "1 sequence" if size.batch == 1 else f"{size.batch:,} sequences"
    return f"{name}: {size.tokens:,} tokens{meant} × {batch}, {size.dtype}, convention {size.convention}{rank}"


def _print_notes(sizes: list[KVCacheSize]) -> None:
    for size in sizes:
        for note in size.notes:
            print(visible(f"note: {size.name}: {note}"))


def verify(model: str, size: KVCacheSize) -> dict[str, Any]:
    """Compare formula and measurement. Replaces conventions and dtypes that transformers lacks, and says so."""
    states = any(layer.state_nbytes for layer in size.per_layer)
    tokens = min(size.tokens, VERIFY_TOKENS_WITH_STATES) if states else size.tokens
    convention = size.convention if size.convention in MEASURABLE else "hf_dynamic"
    dtype = size.dtype if size.dtype in FLOATS else "bf16"
    formula = kv_cache(model, tokens, size.batch, dtype, convention)
    measured = measure(model, tokens, size.batch, dtype, convention)
    pairs = zip(formula.per_layer, measured.per_layer, strict=True)
    return {
        "tokens": tokens,
        "batch": size.batch,
        "dtype": dtype,
        "convention": convention,
        "layers": len(formula.per_layer),
        "formula_nbytes": formula.nbytes,
        "measured_nbytes": measured.nbytes,
        "differing_layers": [ours.index for ours, theirs in pairs if ours != theirs],
    }


def _checked_text(checked: dict[str, Any]) -> str:
    where = f"at {checked['tokens']:,} tokens × {checked['batch']}, {checked['dtype']}, {checked['convention']}"
    theirs = f"{checked['measured_nbytes']:,} bytes"
    if not checked["differing_layers"]:
        return f"Verified {where}: all {checked['layers']} layers equal transformers' own, {theirs}"
    return (
        f"NOT verified {where}: formula {checked['formula_nbytes']:,} bytes, measured {theirs}; "
        f"layers that differ: {checked['differing_layers']}"
    )


def to_json(size: KVCacheSize) -> dict[str, Any]:
    """A size as plain values. Bytes are of the batch on one rank; growth is of one sequence."""
    return {
        "model": size.name,
        "tokens": size.tokens,
        "batch": size.batch,
        "dtype": size.dtype,
        "convention": size.convention,
        "tp": size.tp,
        "nbytes": size.nbytes,
        "bytes_per_token": size.bytes_per_token,
        "marginal_bytes_per_token": size.marginal_bytes_per_token,
        "fixed_nbytes": size.fixed_nbytes,
        "per_layer": [{"kind": layer.kind, "nbytes": layer.nbytes} for layer in size.per_layer],
        "notes": list(size.notes),
    }


def plan_json(plan: Plan) -> dict[str, Any]:
    """A plan as plain values: bytes of one card, tokens a second as the bandwidth's ceiling."""
    return {
        "name": plan.gpu.name,
        "memory_nbytes": plan.gpu.memory_nbytes,
        "reserve_nbytes": plan.reserve_nbytes,
        "weights_nbytes": plan.weights_nbytes,
        "kv_budget_nbytes": plan.kv_budget_nbytes,
        "fits": plan.fits,
        "users": plan.users,
        "max_context": plan.max_context,
        "max_tokens_per_second_one_user": round(plan.steps_per_second(), 1),
        "notes": list(plan.notes),
    }

"""Random configs of every family, saved as transformers saves them: our sizes against transformers' own caches.

    python tests/sizing/size_fuzz.py --rounds 20                 # every family that sizing knows
    python tests/sizing/size_fuzz.py --rounds 50 lfm2 gemma4_text

Each round draws field values, builds transformers' model on the meta device (or, where that can't be, on the CPU), and
runs it once. Three spellings of the config are compared with its cache, layer by layer: the fields as drawn, the config
in full, and the file that `save_pretrained` writes, which leaves out what equals the class's defaults. CI runs a round
(`test_size_fuzz.py`); many rounds take minutes.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import random
import sys
import warnings
from collections import Counter, defaultdict
from typing import Any

import size_families as families
import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, EncoderDecoderCache, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.utils import logging

from llmlesson.errors import LessonError
from llmlesson.sizing import kv_cache, resolve
from llmlesson.sizing.decoder import text_types
from llmlesson.sizing.fields import model_types
from llmlesson.sizing.meta_device import size_of_cache

HIDDEN = (48, 96)  # heads of 2, 4 and 6 divide both
HEADS = ((2, 1), (2, 2), (4, 1), (4, 2), (4, 4), (6, 3), (6, 2))
DIMS = (8, 16, 32)
COUNTS: dict[str, tuple[Any, ...]] = {
    "vocab_size": (130,),
    "vocab_size_per_layer_input": (130,),
    "intermediate_size": (32,),
    "ffn_dim": (32,),
    "decoder_ffn_dim": (32,),
    "encoder_ffn_dim": (32,),
    "d_ff": (32,),
    "n_inner": (32,),
    "moe_intermediate_size": (32,),
    "expert_ffn_hidden_size": (32,),
    "ffn_hidden_size": (32,),
    "shared_expert_intermediate_size": (32,),
    "n_routed_experts": (4,),
    "num_experts": (4,),
    "num_local_experts": (4,),
    "num_experts_per_tok": (2,),
    "n_shared_experts": (1,),
    "num_experts_per_token": (2,),
    "moe_topk": (2,),
    "n_group": (1,),
    "topk_group": (1,),
    "encoder_layers": (1,),
    "max_position_embeddings": (256,),
    "n_positions": (256,),
    # latent attention
    "kv_lora_rank": (8, 24),
    "q_lora_rank": (16,),
    "qk_rope_head_dim": (8, 16),
    "qk_nope_head_dim": (8, 24),
    "v_head_dim": (8, 24),
    "index_head_dim": (16, 32),
    "index_n_heads": (2,),
    "index_topk": (4,),
    # windows
    "sliding_window": (None, 1, 2, 5, 9, 30),
    "attention_chunk_size": (3, 8, 30),
    "use_sliding_window": (True, False),
    "max_window_layers": (0, 1, 3, 9),
    "sliding_window_pattern": (1, 2, 3),
    "no_rope_layer_interval": (2, 4),
    "num_kv_shared_layers": (0, 1, 2),
    "global_head_dim": (8, 16, 32),
    "num_global_key_value_heads": (None, 1, 2),
    "attention_k_eq_v": (True, False),
    "hidden_size_per_layer_input": (8,),
    # states
    "full_attention_interval": (2, 3),
    "linear_conv_kernel_dim": (2, 4),
    "linear_key_head_dim": (8, 16),
    "linear_value_head_dim": (8, 16),
    "linear_num_key_heads": (2,),
    "linear_num_value_heads": (2, 4),
    "conv_L_cache": (3, 4),
    "attn_layer_period": (2, 3),
    "attn_layer_offset": (0, 1),
    "mamba_d_state": (8, 16),
    "mamba_d_conv": (2, 4),
    "state_size": (8, 16),
    "conv_kernel": (2, 4),
}
FAMILIES = sorted(set(model_types()) - {"whisper", "mllama_text_model"})  # these two read sounds and images
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers", "decoder_layers")
QUERY = ("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads")
WIDTH = ("hidden_size", "n_embd", "d_model")
NO_HEAD_DIM = {"dbrx", "falcon", "mamba", "mamba2", "falcon_mamba"}  # a property there, or a head of something else
KV = ("num_key_value_heads", "num_kv_heads")


def draw(model_type: str, dice: random.Random) -> dict[str, Any]:
    """Fields for a config of this family: every size that decides its cache, and small values for the rest."""
    known = default_fields(model_type)
    fields = {name: dice.choice(choices) for name, choices in COUNTS.items() if name in known}
    fields |= families.FUZZ.get(model_type, {})
    layers, hidden, (query, kv) = dice.randint(3, 6), dice.choice(HIDDEN), dice.choice(HEADS)
    latent = "kv_lora_rank" in known
    if latent:
        kv = query
    for names, value in ((LAYERS, layers), (QUERY, query), (WIDTH, hidden), (KV, kv)):
        fields |= {name: value for name in names if name in known and name not in fields}
    if latent:
        fields |= {"head_dim": fields["qk_rope_head_dim"]} if known.get("head_dim") else {}  # what most mean by it
        fields |= (
            {"head_dim": fields["qk_rope_head_dim"] + fields["qk_nope_head_dim"]} if model_type == "mistral4" else {}
        )
    elif dice.random() < (0.7 if known.get("head_dim", hidden) is not None else 1) and model_type not in NO_HEAD_DIM:
        fields["head_dim"] = dice.choice(DIMS)
    fields |= _consistent(model_type, known, fields)
    listed = known.get("layer_types")
    if isinstance(listed, list) and dice.random() < 0.4:
        kinds = {*listed, "full_attention", *(["sliding_attention"] if "sliding_window" in known else [])}
        fields["layer_types"] = [dice.choice(sorted(kinds)) for _ in range(layers)]
    elif model_type in families.FUZZ_LAYER_TYPES:
        fields["layer_types"] = [dice.choice(families.FUZZ_LAYER_TYPES[model_type]) for _ in range(layers)]
    if "layer_types" in fields:
        fields |= {name: True for name in ("use_sliding_window",) if name in known}
        if "sliding_window" in known and fields.get("sliding_window") is None:
            fields["sliding_window"] = 9
        fields["layer_types"][-1] = "full_attention"  # transformers runs no model of states alone under these classes
    if not latent and "num_key_value_heads" in known and "attn_config" not in known and dice.random() < 0.05:
        fields["per_layer_config"] = {"0": {"num_key_value_heads": 1}, "2": {"num_key_value_heads": query}}
    if "indexer_types" in known and dice.random() < 0.7:
        fields["indexer_types"] = ["full", *(dice.choice(("full", "shared")) for _ in range(layers - 1))]
    return fields


def _consistent(model_type: str, known: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """What must fit together, or fit the small sizes, for transformers to run the model."""
    more: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    hidden = next((fields[name] for name in WIDTH if name in fields), 0)
    query = next((fields[name] for name in QUERY if name in fields), 1)
    dim = fields.get("head_dim", hidden // query)
    rope = known.get("rope_parameters") or {}
    if "mrope_section" in rope or model_type in ("qwen2_vl_text", "qwen2_5_vl_text"):
        first = dim // 2 // 2
        more["rope_parameters"] = {**rope, "rope_type": "default", "mrope_section": [first, (dim // 2 - first) // 2]}
        rest = dim // 2 - sum(more["rope_parameters"]["mrope_section"])
        more["rope_parameters"]["mrope_section"].append(rest)
    if "rotary_dim" in known:
        more["rotary_dim"] = 4
    if model_type == "mamba2":
        more |= {"num_heads": 4, "head_dim": 2 * hidden // 4, "expand": 2, "n_groups": 2}
    if "mamba_d_ssm" in known:
        more |= {"mamba_n_heads": 4, "mamba_d_head": 24, "mamba_d_ssm": 96}
    elif "mamba_n_heads" in known:
        more |= {"mamba_n_heads": 4, "mamba_expand": 2, "mamba_d_head": "auto" if hidden == 48 else 48}
    return more


def default_fields(model_type: str) -> dict[str, Any]:
    config: dict[str, Any] = CONFIG_MAPPING[model_type]().to_dict()
    return config


def model_class(config: Any) -> type[PreTrainedModel]:
    """The class that runs this config as a language model: the auto class's, else the one in its own module."""
    if config.is_encoder_decoder and type(config) in AutoModelForSeq2SeqLM._model_mapping:
        return AutoModelForSeq2SeqLM._model_mapping[type(config)]
    if type(config) in AutoModelForCausalLM._model_mapping:
        return AutoModelForCausalLM._model_mapping[type(config)]
    module = importlib.import_module(type(config).__module__.replace(".configuration_", ".modeling_"))
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, PreTrainedModel) and value.config_class is type(config)
        and {"input_ids", "use_cache"} <= set(inspect.signature(value.forward).parameters)
    ]  # fmt: skip
    return max(found, key=lambda one: (one.__name__.endswith("TextModel"), one.__name__.endswith("Model")))


def transformers_cache(config: Any, tokens: int) -> Any:
    """The cache of a random model of this config after one prompt of `tokens` tokens."""
    cls = model_class(config)
    error: Exception | None = None
    for device in ("meta", "cpu"):
        try:
            with torch.device("meta"):
                model = cls._from_config(config, dtype=torch.float32, experts_implementation="batched_mm")
            if device == "cpu":
                if sum(p.numel() for p in model.parameters()) > 4e7:
                    break
                model = cls._from_config(config, dtype=torch.float32)
            ids = torch.full((1, tokens), 5, dtype=torch.long, device=device)
            more = {"decoder_input_ids": ids} if config.is_encoder_decoder else {}
            with torch.no_grad(), torch.device(device):
                outputs = model.eval()(input_ids=ids, use_cache=True, **more)
            cache = getattr(outputs, "cache", None)
            return outputs.past_key_values if cache is None else cache
        except Exception as caught:
            error = error or caught
    raise error or RuntimeError("too large for the CPU")


def compare(model_type: str, fields: dict[str, Any], tokens: int) -> list[tuple[str, str]]:
    """One (outcome, what happened) for each spelling of the config: "agrees", "noted", "refused" or "DIFFERS"."""
    try:
        config = CONFIG_MAPPING[model_type](**json.loads(json.dumps(fields)))
        spellings = {
            "drawn": {"model_type": model_type, **fields},
            "full": json.loads(config.to_json_string(use_diff=False)),
            "saved": json.loads(config.to_json_string()),
        }
        cache = transformers_cache(config, tokens)
    except Exception as error:
        return [("can't be built", f"{type(error).__name__}: {' '.join(str(error).split())[:160]}")]
    return [
        (outcome, f"{name}: {what}")
        for name, one in spellings.items()
        for outcome, what in [_check(one, cache, tokens)]
    ]


def _check(config: dict[str, Any], cache: Any, tokens: int) -> tuple[str, str]:
    cross = tokens if isinstance(cache, EncoderDecoderCache) else None
    try:
        spec = resolve(config)
        ours = kv_cache(spec, tokens, 1, "fp32", "hf_dynamic", cross_tokens=cross)
        theirs = size_of_cache(cache, spec, tokens, 1, "fp32")
    except LessonError as error:
        return "refused", str(error)
    for one, other in zip(ours.per_layer, theirs.per_layer, strict=True):
        if one != other:
            return "noted" if ours.notes else "DIFFERS", f"ours {one}, transformers' {other}; {ours.notes}"
    return "agrees", ""


def inside(outer: str) -> str:
    """Whether the language model inside a family with towers is found in the file that transformers saves for it."""
    if outer not in CONFIG_MAPPING:
        return "remote code"
    config = CONFIG_MAPPING[outer]()
    text = config
    while (inner := text.get_text_config(decoder=True)).model_type != text.model_type:
        text = inner
    try:
        whole = resolve(json.loads(text.to_json_string(use_diff=False)))
    except LessonError:  # defaults that don't fit together
        return "refused"
    saved = resolve(json.loads(config.to_json_string()))
    return "agrees" if (saved.model_type, saved.layers) == (whole.model_type, whole.layers) else "DIFFERS"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("family", nargs="*", help="model types; default: all that sizing knows")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=2, help="how many differing configs of a family to print")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.set_verbosity(logging.CRITICAL)
    totals: Counter[str] = Counter()
    kinds: dict[str, set[str]] = defaultdict(set)
    for model_type in options.family or FAMILIES:
        dice = random.Random(f"{options.seed} {model_type}")
        outcomes: Counter[str] = Counter()
        shown: Counter[str] = Counter()
        for _ in range(options.rounds):
            fields, tokens = draw(model_type, dice), dice.randint(1, 20)
            for outcome, what in compare(model_type, fields, tokens):
                outcomes[outcome] += 1
                if outcome != "agrees" and (outcome, what[:40]) not in shown and len(shown) < options.show:
                    shown[outcome, what[:40]] += 1
                    print(f"  {model_type} {outcome}: {what}\n    {tokens} tokens, {json.dumps(fields)}")
        totals += outcomes
        for outcome in outcomes:
            kinds[outcome].add(model_type)
        print(model_type, dict(outcomes), flush=True)
    towers = {outer: inside(outer) for outer in ([] if options.family else text_types())}
    print("families with towers", dict(Counter(towers.values())), [k for k, v in towers.items() if v == "DIFFERS"])
    print("comparisons", dict(totals), "families", {outcome: len(names) for outcome, names in kinds.items()})
    for outcome in set(kinds) - {"agrees"}:
        print(outcome, sorted(kinds[outcome]))
    return 1 if totals["DIFFERS"] or "DIFFERS" in towers.values() else 0


if __name__ == "__main__":
    sys.exit(main())

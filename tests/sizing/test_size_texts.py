"""What sizing says, word for word: one cache with a layer of each kind, a table, and plans."""

from __future__ import annotations

from dataclasses import replace

from llmlesson.sizing import Attention, Layer, State, fit, get_convention, kv_cache, resolve
from llmlesson.sizing.tables import compare_table

OWN = Attention(4, 16, 16)
LAYERS = [
    *[Layer("sliding", (Attention(4, 16, 16, window=100),))] * 2,
    Layer("full", (OWN,)),
    Layer("chunked", (Attention(4, 16, 16, window=100, chunked=True),)),
    Layer("linear", (State("conv", (64, 4), conv=True), State("ssm", (64, 16), dtype="fp32"))),
    Layer("mla", (Attention(1, 64, 32, latent=True), Attention(1, 32, 0, latent=True))),
    Layer("cross", (OWN, Attention(4, 16, 16, cross=True))),
    Layer("shared"),
    Layer("none"),
    Layer("full", (OWN,)),
]
# On a rank, 32 keys and 32 values of a token take 34 bytes each; all of an MLA latent is on each rank.
FORMULA = """\
Layers
  2 × sliding-window attention (layers 0–1)
      keys     2 heads × 16 values × 1,024 cells × 2 sequences × 34/32 bytes = 69,632
      values   2 heads × 16 values × 1,024 cells × 2 sequences × 34/32 bytes = 69,632
      cells = 1,024: 1,000 tokens, window 100, convention vllm
      139,264 bytes a layer × 2 = 278,528 bytes
  2 × full attention (layers 2, 9)
      keys     2 heads × 16 values × 1,008 cells × 2 sequences × 34/32 bytes = 68,544
      values   2 heads × 16 values × 1,008 cells × 2 sequences × 34/32 bytes = 68,544
      cells = 1,008: 1,000 tokens, rounded up by convention vllm
      137,088 bytes a layer × 2 = 274,176 bytes
  1 × chunked attention (layers 3)
      keys     2 heads × 16 values × 1,008 cells × 2 sequences × 34/32 bytes = 68,544
      values   2 heads × 16 values × 1,008 cells × 2 sequences × 34/32 bytes = 68,544
      cells = 1,008: 1,000 tokens, chunk 100, convention vllm
      137,088 bytes a layer × 1 = 137,088 bytes
  1 × linear attention or Mamba (layers 4)
      state    conv 32 × 3 values × 2 sequences × 2 bytes = 384
      state    ssm 32 × 16 values × 2 sequences × 2 bytes = 2,048
      2,432 bytes a layer × 1 = 2,432 bytes
  1 × multi-head latent attention (MLA) (layers 5)
      latent   64 values × 1,008 cells × 2 sequences × 34/32 bytes = 137,088
      rope key 32 values × 1,008 cells × 2 sequences × 34/32 bytes = 68,544
      cells = 1,008: 1,000 tokens, rounded up by convention vllm
      index keys 32 values × 1,008 cells × 2 sequences × 34/32 bytes = 68,544
      cells = 1,008: 1,000 tokens, rounded up by convention vllm
      274,176 bytes a layer × 1 = 274,176 bytes
  1 × cross-attention (layers 6)
      keys     2 heads × 16 values × 1,008 cells × 2 sequences × 34/32 bytes = 68,544
      values   2 heads × 16 values × 1,008 cells × 2 sequences × 34/32 bytes = 68,544
      cells = 1,008: 1,000 tokens, rounded up by convention vllm
      keys     2 heads × 16 values × 64 cells × 2 sequences × 34/32 bytes = 4,352
      values   2 heads × 16 values × 64 cells × 2 sequences × 34/32 bytes = 4,352
      cells = 64: 50 encoder or image tokens, whatever the context's length
      145,792 bytes a layer × 1 = 145,792 bytes
  1 × attention on another layer's cache (layers 7)
      0 bytes a layer × 1 = 0 bytes
  1 × no attention (layers 8)
      0 bytes a layer × 1 = 0 bytes
"""
MEASURED = """\
Layers
  layers 0–1: sliding, 139,264 bytes each
  layers 2: full, 137,088 bytes each
  layers 3: chunked, 137,088 bytes each
  layers 4: linear, 2,432 bytes each
  layers 5: mla, 274,176 bytes each
  layers 6: cross, 145,792 bytes each
  layers 7: shared, 0 bytes each
  layers 8: none, 0 bytes each
  layers 9: full, 137,088 bytes each
"""
# Growth: 68 bytes in each layer with heads, 136 in the one with a latent; the windows of three layers fill.
SUMS = """\
Total  1,112,192 bytes = 0.00111 GB (10⁹) = 0.00104 GiB (2³⁰)
Growth 544 bytes a token of one sequence (0.544 KB = 0.531 KiB)
       340 bytes a token once every window is full
Fixed  11,136 bytes whatever the context's length (11.14 KB = 10.88 KiB)
"""


def test_explanation_of_a_layer_of_each_kind():
    size = kv_cache(LAYERS, 1000, 2, "q8_0", "vllm", tp=2, cross_tokens=50)
    what = "1,000 tokens × 2 sequences, q8_0, 50 cross-attention tokens, one of 2 tensor-parallel ranks"
    rule = get_convention("vllm")
    end = f"{SUMS}\nConvention vllm: {rule.rule}\nSource: {rule.source}"
    assert size.explain() == f"KV cache of these layers: {what}, by formula\n\n{FORMULA}\n{end}"
    measured = replace(size, origin="measured", notes=("All is well.",)).explain()
    how = "measured on transformers' own cache"
    assert measured == f"KV cache of these layers: {what}, {how}\n\n{MEASURED}\n{end}\nNote: All is well."


def test_explanation_of_a_plain_cache_leaves_out_what_it_has_not():
    lines = kv_cache([Layer("full", (OWN,))] * 12, 1000).explain().splitlines()
    assert lines[0] == "KV cache of these layers: 1,000 tokens × 1 sequence, bf16, by formula"
    assert lines[3:7] == [
        "  12 × full attention (layers 0–11)",
        "      keys     4 heads × 16 values × 1,000 cells × 2 bytes = 128,000",
        "      values   4 heads × 16 values × 1,000 cells × 2 bytes = 128,000",
        "      256,000 bytes a layer × 12 = 3,072,000 bytes",
    ]
    assert not [line for line in lines if "once every window" in line or line.startswith(("Fixed", "Note"))]
    alternating = [Layer("full", (OWN,)), Layer("none")] * 9
    assert "(layers 0, 2, 4, 6, 8, …, 16)" in kv_cache(alternating, 1).explain()


def test_long_values_are_cut():
    config = {"model_type": "gemma3_text", "num_hidden_layers": 6, "layer_types": ["full_attention"] * 6}
    assert "list of 6  (config)" in kv_cache(config, 5).explain()


def test_models_side_by_side():
    names = ("Llama-2-7b-hf", "gemma-3-1b-it", "DeepSeek-V3", "AI21-Jamba-1.5-Mini")
    assert compare_table([kv_cache(name, 1000) for name in names]) == (
        "model                                         layers  bytes/token  windows full  fixed bytes  GB (10⁹)  "
        "GiB (2³⁰)\n"
        "────────────────────────────  ──────────────────────  ───────────  ────────────  ───────────  ────────  "
        "─────────\n"
        "meta-llama/Llama-2-7b-hf                      32 MHA      524,288       524,288            0     0.524      "
        "0.488\n"
        "google/gemma-3-1b-it          4 MQA + 22 MQA sliding       26,624         4,096            0     0.016      "
        "0.015\n"
        "deepseek-ai/DeepSeek-V3                       61 MLA       70,272        70,272            0     0.070      "
        "0.065\n"
        "ai21labs/AI21-Jamba-1.5-Mini       4 GQA + 28 linear       16,384        16,384   16,515,072     0.033      "
        "0.031"
    )


def test_plan_in_words():
    assert fit("Llama-3.1-70B", "H100-80GB", "fp8", context=4096, tp=2).explain().splitlines()[:-1] == [
        "meta-llama/Llama-3.1-70B on 2 × H100-80GB: weights fp8, cache bf16, context 4,096",
        "  memory      85.52 GB = 79.65 GiB (each card)",
        "  − reserve   8.55 GB = 7.96 GiB (10 %: activations, workspace)",
        "  − weights   35.28 GB = 32.85 GiB",
        "  = for cache 41.69 GB = 38.83 GiB",
        "  one user    671.09 MB = 640.00 MiB at 4,096 tokens",
        "  users       62 at once with 4,096 tokens each",
        "  longest     254,467 tokens, for one user",
        "  decode      at most 95 tokens/s for one user; with 62 users 44 each, 2,720 in all "
        "(bandwidth / bytes of weights and cache read a step)",
    ]
    plan = fit("Phi-3-mini-4k-instruct", "H100-80GB", context=4096)
    assert "  longest     any number of tokens, for one user" in plan.explain()
    assert [note for note in plan.notes if "4,096 tokens" in note]  # memory has room for more than it is made for


def test_llama4_without_a_chunk_size_is_full_attention():
    config = {"model_type": "llama4_text", "num_hidden_layers": 4, "attention_chunk_size": 32}
    assert [layer.kind for layer in resolve(config).layers] == ["chunked"] * 3 + ["full"]
    assert [layer.kind for layer in resolve({**config, "attention_chunk_size": None}).layers] == ["full"] * 4


def test_orders_of_layers_that_a_config_leaves_out():
    kimi = resolve({"model_type": "kimi_linear", "num_hidden_layers": 9}).layers
    assert [layer.kind for layer in kimi] == ["linear"] * 4 + ["mla"] + ["linear"] * 3 + ["mla"]
    indexed = resolve({"model_type": "deepseek_v32"}).layers[-1]
    assert [(part.kv_heads, part.latent) for part in indexed.attentions] == [(1, True), (1, True)]

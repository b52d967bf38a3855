"""What holds for every model, every number of tokens and every convention."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmlesson.sizing import CONVENTIONS, Attention, Layer, State, kv_cache, model_table

attentions = st.builds(
    Attention,
    kv_heads=st.integers(1, 16),
    key_dim=st.sampled_from([32, 64, 128, 192]),
    value_dim=st.sampled_from([32, 64, 128]),
    window=st.none() | st.integers(1, 5000),
    chunked=st.booleans(),
    latent=st.booleans(),
)
states = st.builds(
    State,
    name=st.just("state"),
    shape=st.tuples(st.integers(1, 64), st.integers(2, 64)),
    dtype=st.sampled_from(["model", "fp32"]),
    conv=st.booleans(),
)
layers = st.lists(
    st.builds(Layer, kind=st.just("any"), parts=st.lists(attentions | states, max_size=3).map(tuple)),
    min_size=1,
    max_size=6,
)
tokens = st.integers(1, 20_000)
conventions = st.sampled_from(CONVENTIONS)
dtypes = st.sampled_from(["fp32", "bf16", "fp8", "q8_0", "q4_0", "nvfp4"])


@given(layers, tokens, dtypes, conventions)
def test_additive_over_layers(model, count, dtype, convention):
    whole = kv_cache(model, count, dtype=dtype, convention=convention)
    parts = [kv_cache([layer], count, dtype=dtype, convention=convention) for layer in model]
    for attribute in ("nbytes", "bytes_per_token", "marginal_bytes_per_token", "fixed_nbytes"):
        assert getattr(whole, attribute) == sum(getattr(part, attribute) for part in parts)


@given(layers, tokens, st.integers(1, 300), dtypes, conventions)
def test_linear_in_batch(model, count, batch, dtype, convention):
    one = kv_cache(model, count, 1, dtype, convention)
    many = kv_cache(model, count, batch, dtype, convention)
    assert (many.nbytes, many.fixed_nbytes) == (batch * one.nbytes, batch * one.fixed_nbytes)
    assert many.bytes_per_token == one.bytes_per_token  # of one sequence


@given(layers, tokens, st.integers(0, 5000), dtypes, conventions)
def test_never_decreases_in_tokens(model, count, more, dtype, convention):
    assert (
        kv_cache(model, count, 1, dtype, convention).nbytes
        <= kv_cache(model, count + more, 1, dtype, convention).nbytes
    )


@given(layers, tokens, dtypes)
def test_ideal_grows_by_what_it_says(model, count, dtype):
    size, next_size = kv_cache(model, count, 1, dtype), kv_cache(model, count + 1, 1, dtype)
    growth = next_size.nbytes - size.nbytes
    assert size.marginal_bytes_per_token <= growth <= size.bytes_per_token
    if count >= 5000:  # every window is full
        assert growth == size.marginal_bytes_per_token


@given(layers, tokens, dtypes, st.sampled_from(["hf_static", "vllm", "llama_cpp"]))
def test_engines_that_round_never_give_keys_less_room(model, count, dtype, convention):
    ideal = kv_cache(model, count, 1, dtype)
    rounded = kv_cache(model, count, 1, dtype, convention)
    for ours, theirs in zip(ideal.per_layer, rounded.per_layer, strict=True):
        assert ours.key_nbytes <= theirs.key_nbytes


@given(
    st.integers(1, 6),
    st.integers(1, 12),
    st.sampled_from([32, 64, 96]),
    tokens,
    conventions,
    st.sampled_from(["llama", "qwen3"]),
)
def test_gqa_with_as_many_kv_heads_is_mha(depth, heads, head_dim, count, convention, family):
    config = {
        "model_type": family,
        "num_hidden_layers": depth,
        "num_attention_heads": heads,
        "head_dim": head_dim,
        "hidden_size": heads * head_dim,
    }
    gqa = kv_cache({**config, "num_key_value_heads": heads}, count, convention=convention)
    mha = kv_cache({**config, "num_key_value_heads": None}, count, convention=convention)
    assert gqa.per_layer == mha.per_layer
    assert mha.bytes_per_token == 2 * depth * heads * head_dim * 2


@given(st.sampled_from(sorted(model_table())), tokens, st.integers(0, 4), conventions)
def test_ranks_together_hold_at_least_the_whole(name, count, power, convention):
    config = model_table()[name]["config"]
    heads = config.get("text_config", config)
    if heads.get("num_attention_heads", heads.get("n_head")) % 2**power:
        return  # no engine would split these heads so
    kv_heads = heads.get("num_key_value_heads", heads.get("n_head"))
    if kv_heads and max(kv_heads, 2**power) % min(kv_heads, 2**power):
        return
    one_rank = kv_cache(name, count, convention=convention, tp=2**power).nbytes
    assert one_rank <= kv_cache(name, count, convention=convention).nbytes <= one_rank * 2**power

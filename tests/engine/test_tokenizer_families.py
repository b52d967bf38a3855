"""Tokenizers of the other families, in small: SentencePiece with byte fallback (Llama 2, Mistral, Gemma) in its three
spellings, byte-level BPE with a begin-of-sequence token (Llama 3) or with added tokens that are no control tokens
(Qwen3), Unigram and WordPiece."""

from __future__ import annotations

import json

import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from llmlesson.engine import tokenizer as ours

CORPUS = [
    "Hello world, this is a tiny corpus.",
    "hello there world",
    "  indented   text\nand lines\n",
    "[INST] ok [/INST]",
]
SENTENCEPIECE_DECODER = decoders.Sequence(
    [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
)
WITHOUT_PREFIX_DECODER = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
LLAMA2_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content.strip() }} [/INST]"
    "{% else %} {{ m.content }} {{ eos_token }}{% endif %}{% endfor %}"
)
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)


def sentencepiece(prefix):
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    if prefix == "legacy":  # as in the files of Llama 2
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=prefix, split=False)
    tokenizer.decoder = SENTENCEPIECE_DECODER if prefix != "never" else WITHOUT_PREFIX_DECODER
    trainer = trainers.BpeTrainer(special_tokens=["<unk>", "<s>", "</s>", *BYTES], vocab_size=330, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return with_start(with_bytes_as_ordinary_tokens(tokenizer))


def with_bytes_as_ordinary_tokens(tokenizer):
    """A trainer makes them added tokens; in real files only the three control tokens are."""
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if token["content"] not in BYTES]
    return Tokenizer.from_str(json.dumps(state))


def with_start(tokenizer):
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}, LLAMA2_TEMPLATE


def unigram():
    """As T5's: a dummy prefix, its decoder Metaspace, and bytes for what it can't spell."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    special = ["<unk>", "<s>", "</s>", *BYTES]
    trainer = trainers.UnigramTrainer(special_tokens=special, unk_token="<unk>", vocab_size=330, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    state = json.loads(with_bytes_as_ordinary_tokens(tokenizer).to_str())
    state["model"]["byte_fallback"] = True
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace("▁", "always")])
    return with_start(tokenizer)


def wordpiece():
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    trainer = trainers.WordPieceTrainer(special_tokens=["<unk>", "<s>", "</s>"], vocab_size=200, show_progress=False)
    tokenizer.train_from_iterator([*CORPUS, "don't , they 're . it 's ! do not ?"], trainer)
    return with_start(tokenizer)


def byte_level(bos):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        special_tokens=special,
        vocab_size=330,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken(name, special=False, normalized=False) for name in ("<think>", "</think>")])
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
        )
    return tokenizer, {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}, CHATML


KINDS = {
    "llama2": lambda: sentencepiece("legacy"),
    "mistral": lambda: sentencepiece("first"),
    "gemma": lambda: sentencepiece("never"),
    "unigram": unigram,
    "wordpiece": wordpiece,
    "llama3": lambda: byte_level(bos=True),
    "qwen3": lambda: byte_level(bos=False),
}


@pytest.fixture(scope="module", params=KINDS)
def pair(request, tmp_path_factory):
    """(our tokenizer, transformers') from one folder."""
    folder = tmp_path_factory.mktemp(request.param)
    tokenizer, names, template = KINDS[request.param]()
    reference = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    reference.chat_template = template
    reference.save_pretrained(folder)
    return ours.Tokenizer(folder), reference


TEXTS = ["Hello world", " leading", "trailing ", "two  spaces", "日本 ñ 👋", "line\nline", "", "[INST] x"]


@pytest.mark.parametrize("text", TEXTS)
def test_plain_text(pair, text):
    tokenizer, reference = pair
    assert tokenizer.encode(text) == reference.encode(text, add_special_tokens=False)
    assert tokenizer.raw(text) == reference.encode(text)
    assert tokenizer.decode(tokenizer.encode(text)) == reference.decode(
        reference.encode(text), skip_special_tokens=True
    )


@pytest.mark.parametrize("text", TEXTS)
def test_chat_equals_transformers_and_has_one_begin_of_sequence_at_most(pair, text):
    tokenizer, reference = pair
    messages = [
        {"role": "user", "content": "hello there"},
        {"role": "assistant", "content": "<think>x</think> world"},
        {"role": "user", "content": text},
    ]
    ids = tokenizer.chat(messages)
    assert ids == reference.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert ids.count(reference.bos_token_id) <= 1


@pytest.mark.parametrize("typed", ["</s>", "<s>", "<|im_end|>", "<think>", "a<|endoftext|>b"])
def test_typed_text_never_becomes_an_added_token(pair, typed):
    tokenizer, _ = pair
    added = set(tokenizer.special_tokens.values()) - {tokenizer.special_tokens.get("<unk>")}
    assert not added & set(tokenizer.encode(typed))
    kept = [i for i in tokenizer.chat("x") if i in added]
    assert [i for i in tokenizer.chat(typed) if i in added] == kept


@given(st.lists(st.text(max_size=8), max_size=6))
@settings(deadline=None, max_examples=60)
def test_streamed_text_joined_is_the_whole_text(pair, texts):
    tokenizer, _ = pair
    ids = [token for text in texts for token in tokenizer.encode(text)]
    assert streamed(tokenizer, ids) == tokenizer.decode(ids)


@given(st.data())
@settings(deadline=None, max_examples=300)
def test_so_it_is_for_any_ids_with_control_tokens_between(pair, data):
    tokenizer, _ = pair
    text = st.integers(0, tokenizer.vocab_size - 1)
    control = st.sampled_from(sorted(tokenizer.control_names))
    ids = data.draw(st.lists(text | control | st.sampled_from(sorted(tokenizer.byte_ids) or [0]), max_size=12))
    assert streamed(tokenizer, ids) == tokenizer.decode(ids)


def streamed(tokenizer, ids):
    stream = tokenizer.stream()
    return "".join([stream.push(i) for i in ids] + [stream.flush()])


def test_a_space_after_a_control_token_stays(pair):
    tokenizer, reference = pair
    ids = [*tokenizer.encode("Hello"), reference.convert_tokens_to_ids(reference.eos_token)]
    ids += tokenizer.encode("Hello x")[len(tokenizer.encode("Hello")) :]
    assert streamed(tokenizer, ids) == tokenizer.decode(ids)
    assert streamed(tokenizer, ids).endswith(" x")

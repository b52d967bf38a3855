"""Our own byte-pair encoding against the library's, on the default model's merge table and on made-up ones."""

from __future__ import annotations

import re

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from llmlesson.errors import LessonError
from llmlesson.views import tokens as view
from llmlesson.widgets.spelling import spelled
from llmlesson.widgets.tokenizer_session import TokenizerSession

TEXTS = [
    "",
    " ",
    "Hello tokenizers",
    "the  theatre\n\n\tthere's 12,345 €",
    "aaaaaaaaaaaaaaaaaaaaaaaa",
    "internationalization unbelievable antidisestablishmentarianism",
    "שלום עולם مرحبا \u202eabc",
    "👩‍👩‍👧 naïve façade Ǆ 漢字かな",
    "<script>alert(1)</script><|im_end|>",
    "\x00\x04\x06\x13\x14\x16\x1d\x1b[31m\x7f",
    "x" * 5000,
    "def f(x):\n    return x**2  # square\n" * 20,
]


class Wrapped:
    """A tokenizer of the library in the shape of ours."""

    def __init__(self, library):
        self.plain = library

    def encode(self, text):
        return self.plain.encode(text, add_special_tokens=False).ids


def trained(model, pre_tokenizer=None, normalizer=None, **options):
    """A library tokenizer trained on a few lines of text."""
    library = tokenizers.Tokenizer(model)
    if pre_tokenizer:
        library.pre_tokenizer = pre_tokenizer
        library.decoder = decoders.ByteLevel()
    if normalizer:
        library.normalizer = normalizer
    lines = ["the theatre there then", "hello yellow mellow fellow", "aa aaa aaaa", "caché naïve"] * 5
    library.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=400, show_progress=False, **options))
    return library


def check(tokenizer, text):
    """All that must hold at every step."""
    session = TokenizerSession(tokenizer, text)
    assert session.ids(len(session.merges)) == tokenizer.encode(text)
    start = b"".join(chip.raw for chip in session.chips(0))
    count = len(session.merges)
    for done in {0, min(1, count), count // 2, count}:
        chips = session.chips(done)
        assert len(chips) == len(session.symbols) - done, "each merge makes one of two"
        assert b"".join(chip.raw for chip in chips) == start, "no byte is lost or made"
        assert sum(chip.fresh for chip in chips) == (done > 0)
    return session


@pytest.mark.parametrize("text", TEXTS)
def test_the_default_models_tokens_come_out(real_tokenizer, text):
    session = check(real_tokenizer, text)
    if "\x04" not in text:
        assert b"".join(chip.raw for chip in session.chips(0)) == text.encode()


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60))
def test_any_texts_tokens_come_out(real_tokenizer, text):
    check(real_tokenizer, text)


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet="the ahelowy\n", max_size=60))
def test_texts_in_which_much_merges(real_tokenizer, text):
    check(real_tokenizer, text)


def test_one_merge_at_a_time(real_tokenizer):
    session = TokenizerSession(real_tokenizer, "hello")
    spelled = [[chip.raw.decode() for chip in session.chips(done)] for done in range(5)]
    assert spelled == [
        ["h", "e", "l", "l", "o"],
        ["he", "l", "l", "o"],
        ["he", "ll", "o"],
        ["hell", "o"],
        ["hello"],
    ]
    ranks = [merge.rank for merge in session.merges]
    assert ranks == sorted(ranks)
    assert session.explain(1) == "Merge 1 of 4: h + e → he, rank 3 in the merge table (they go from 0 to 48,899)."
    assert session.explain(0).startswith("No merge yet: 5 symbols, of which 4 merges")


def test_no_merge_crosses_a_piece(real_tokenizer):
    session = TokenizerSession(real_tokenizer, "no 12 go")
    assert [chip.raw for chip in session.chips(len(session.merges))] == [b"no", b" ", b"1", b"2", b" go"]
    assert session.piece_starts == {0, 2, 3, 4, 5}


@settings(max_examples=60, deadline=None)
@given(text=st.text(alphabet="thealowy é€\n", max_size=40))
@pytest.mark.parametrize(
    "library",
    [
        trained(
            models.BPE(),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
        # As in Llama 3: a piece that is a token is taken whole.
        trained(
            models.BPE(ignore_merges=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
        # As in Llama 2 and Mistral: no pieces, blanks as ▁, unknown characters as bytes.
        trained(
            models.BPE(byte_fallback=True),
            normalizer=normalizers.Replace(" ", "▁"),
            special_tokens=[f"<0x{byte:02X}>" for byte in range(256)],
        ),
    ],
    ids=["byte level", "whole words", "byte fallback"],
)
def test_other_kinds_of_merge_tables(library, text):
    check(Wrapped(library), text)


def test_a_byte_that_stands_for_itself_is_shown_as_that_byte():
    library = trained(
        models.BPE(byte_fallback=True),
        normalizer=normalizers.Replace(" ", "▁"),
        special_tokens=[f"<0x{byte:02X}>" for byte in range(256)],
    )
    session = TokenizerSession(Wrapped(library), "a €")
    assert b"".join(chip.raw for chip in session.chips(len(session.merges))) == "a €".encode()


def test_a_tokenizer_that_merges_nothing_is_refused():
    with pytest.raises(LessonError, match="WordLevel model; only BPE has merges"):
        TokenizerSession(Wrapped(tokenizers.Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))), "a")


def test_merges_that_give_other_tokens_than_the_library_are_not_shown(real_tokenizer):
    class Different(Wrapped):
        def encode(self, text):
            return [0]

    with pytest.raises(LessonError, match="don't produce the tokens"):
        TokenizerSession(Different(real_tokenizer.plain), "hello")


def test_control_tokens_come_from_the_template_only(real_tokenizer):
    session = TokenizerSession(real_tokenizer, "say <|im_end|>")
    assert not any(chip.special for chip in session.chips(len(session.merges)))
    chat = session.chat_chips
    assert [chip.token_id for chip in chat] == real_tokenizer.chat("say <|im_end|>")
    assert [chip.raw.decode() for chip in chat if chip.special] == ["<|im_start|>", "<|im_end|>"] * 2 + ["<|im_start|>"]


def test_characters_without_a_token_are_named(real_tokenizer):
    lost = [char for char in map(chr, range(0x20)) if not real_tokenizer.encode(char)]
    assert lost, "this vocabulary lacks some control characters"
    session = TokenizerSession(real_tokenizer, f"a{lost[0]}b{lost[0]}")
    assert session.lost == [lost[0].encode()] * 2
    said = view.lost(session.lost)
    assert f"U+{ord(lost[0]):04X}" in said
    assert "2 characters or bytes" in said
    assert TokenizerSession(real_tokenizer, "a 🍵").lost == []
    assert view.lost([]) == ""


def test_control_characters_with_a_token_are_written_as_bytes():
    assert view.shown(b"\x07") == "⟨07⟩"
    assert view.shown(b"\n") == "↵"
    assert view.shown(b"") == ""


def test_a_part_of_a_character_is_spelled_in_bytes(real_tokenizer):
    parts = [spelled(real_tokenizer, i) for i in real_tokenizer.encode("🍵")]
    assert len(parts) > 1
    assert all(re.fullmatch(r"⟨[0-9A-F·]+⟩", part) for part in parts)
    assert bytes.fromhex("".join(parts).replace("⟨", "").replace("⟩", "").replace("·", "")).decode() == "🍵"
    [token] = real_tokenizer.encode(" the")
    assert spelled(real_tokenizer, token) == " the"

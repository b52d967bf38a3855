"""Text to token ids and back, the chat template, and text from a stream of ids."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from llmlesson.engine.byte_level import spelled_bytes
from llmlesson.engine.chat_template import read_template, render
from llmlesson.engine.messages import Messages, as_messages
from llmlesson.engine.special_tokens import special_tokens
from llmlesson.errors import LessonError, whole_number
from llmlesson.files.model_files import MAX_TOKENIZER, read_json


class Tokenizer:
    """A Hugging Face `tokenizer.json` in which plain text can never become a control token.

    The library that does the work, `tokenizers`, turns the characters `<|im_end|>` into the control token of that
    name wherever they appear. Here only the chat template, or `special=True`, may do that.
    """

    def __init__(self, folder: Path) -> None:
        file = folder / "tokenizer.json"
        content = read_json(file, MAX_TOKENIZER)
        if not content:
            raise LessonError(f"{folder} has no tokenizer.json: the model takes lists of ids, but no text.")
        settings = read_json(folder / "tokenizer_config.json")
        self._with_special = _build(file, content)
        self.token_names, added = special_tokens(folder, settings, content.get("added_tokens") or [])
        self._with_special.add_tokens(added)
        by_id = self._with_special.get_added_tokens_decoder()
        self.special_tokens: dict[str, int] = {token.content: index for index, token in by_id.items()}
        self.control_names: dict[int, str] = {index: token.content for index, token in by_id.items() if token.special}
        guarded = _unspellable(self.special_tokens, json.loads(self._with_special.to_str()))
        self._guarded = tokenizers.Tokenizer.from_str(json.dumps(guarded))  # see _encode_guarded
        self._real_ids = {self._guarded.token_to_id(name): index for name, index in self.special_tokens.items()}
        self._normalizer = self._guarded.normalizer
        # The library's tokenizer without added tokens: it sees them as the characters that they are.
        plain = {**_unspellable(self.special_tokens, content), "added_tokens": [], "post_processor": None}
        self.plain = _build(file, plain)
        self.byte_ids = _byte_ids(content)
        self._is_byte_level = '"ByteLevel"' in json.dumps(content.get("decoder"))
        self._added_names = _any_of(self.special_tokens)
        self._control_tokens = _any_of(self.control_names.values())
        self._chat_template = read_template(folder, settings)

    @property
    def eos_token(self) -> str | None:
        """The name of the token that ends a turn, if the folder names one."""
        return self.token_names.get("eos_token")

    @property
    def vocab_size(self) -> int:
        """Number of ids, control tokens included."""
        return int(self._with_special.get_vocab_size())

    def encode(self, text: str, special: bool = False) -> list[int]:
        """The ids of a text, nothing added before or after it.

        With `special`, names of control tokens in the text become those tokens; without, they are plain characters.
        Bytes that the vocabulary lacks are dropped. SmolLM2's can spell every assigned character but six control
        characters (U+0004, 06, 13, 14, 16 and 1D).
        """
        _check_text(text)
        tokenizer = self._with_special if special else self.plain
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int], special: bool = False) -> str:
        """The text of some ids. Control tokens are left out unless `special`.

        Bytes that are not valid UTF-8, such as a character cut in half, become the replacement character U+FFFD.
        """
        try:
            return str(self._with_special.decode(list(ids), skip_special_tokens=not special))
        except (TypeError, OverflowError):
            raise LessonError(f"Token ids are a list of whole numbers, 0 or more; this is {ids!r}.") from None

    def token(self, token_id: int) -> str:
        """One token as the vocabulary spells it (byte-level: `Ġ` for a space, `Ċ` for a line end)."""
        token = self._with_special.id_to_token(whole_number(token_id, "A token id", 0, 2**32 - 1))
        if token is None:
            raise LessonError(f"There is no token with the id {token_id}: the vocabulary has {self.vocab_size} ids.")
        return str(token)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token: of a part of a character, where a character takes several tokens."""
        token = self.token(token_id)
        if token in self.special_tokens:
            return token.encode()
        if self._is_byte_level:
            return spelled_bytes(token)
        return bytes([int(token[3:5], 16)]) if token_id in self.byte_ids else token.replace("▁", " ").encode()

    def chat(self, messages: str | Messages) -> list[int]:
        """The ids of a conversation in the model's chat template, ending where the assistant's answer begins.

        Give plain text for one user message, or a list: `[{"role": "user", "content": "…"}, …]`.
        """
        return self._encode_guarded(*self._render(messages))

    def raw(self, text: str) -> list[int]:
        """The ids of a text without a chat template, with a begin-of-sequence token if the model expects one."""
        probe = self._with_special.encode("a", add_special_tokens=True)
        first = probe.special_tokens_mask.index(0)
        return list(probe.ids[:first]) + self.encode(text)

    def stream(self) -> TextStream:
        """Turns ids into text as they come."""
        return TextStream(self)

    def _render(self, messages: str | Messages) -> tuple[str, str]:
        """The conversation in its template, with a guard character inside every control token that a message spells."""
        if self._chat_template is None:
            raise LessonError("This model has no chat template. Give the prompt as it is, with chat=False.")
        conversation = as_messages(messages)
        typed = "".join(_check_text(text) for each in conversation for text in each.values())
        guard = next(_unused_characters(typed + self._chat_template))

        def defuse(role: str | None, text: str) -> str:
            # In the model's own earlier answers, markup such as <think> is intended; control tokens never are.
            names = self._control_tokens if role == "assistant" else self._added_names
            return names.sub(lambda name: name[0][0] + guard + name[0][1:], text)

        guarded = [
            {key: defuse(message.get("role"), text) for key, text in message.items()} for message in conversation
        ]
        return render(self._chat_template, guarded, self.token_names), guard

    def _encode_guarded(self, text: str, guard: str) -> list[int]:
        """Like encode(special=True), but a control token with the guard character in it is plain text.

        A normalizer drops the guard: it runs after control tokens are picked out and before the rest is encoded.
        """
        drop = tokenizers.normalizers.Replace(guard, "")
        steps = [drop] if self._normalizer is None else [drop, self._normalizer]
        self._guarded.normalizer = tokenizers.normalizers.Sequence(steps)
        ids = self._guarded.encode(text, add_special_tokens=False).ids
        return [self._real_ids.get(token, token) for token in ids]


class TextStream:
    """Text from ids one at a time. Joined, the pieces are exactly the text of all ids decoded together.

    A character can be split over several tokens. We hold it back until its bytes are complete. If each byte has a token
    of its own, as in SentencePiece, only a whole run of such tokens shows whether its bytes are text, so we hold the
    run back until another token comes.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._shown: list[int] = []  # the ids shown last: some decoders treat the first token differently
        self._pending: list[int] = []

    def push(self, token_id: int) -> str:
        """The text that this id completes; often a word, sometimes nothing."""
        if whole_number(token_id, "A token id", 0, 2**32 - 1) in self._tokenizer.control_names:
            return ""  # decoding drops these before it does anything else
        self._pending.append(token_id)
        if token_id in self._tokenizer.byte_ids:
            return ""
        text = self._new_text()
        if text.endswith("\N{REPLACEMENT CHARACTER}"):
            return ""
        # Tokens without any text don't count as the first token.
        self._shown = self._pending if text else self._shown + self._pending
        self._pending = []
        return text

    def flush(self) -> str:
        """What is left at the end, complete or not."""
        text, self._pending = self._new_text(), []
        return text

    def copy(self) -> TextStream:
        """An independent copy in the same state."""
        copy = TextStream(self._tokenizer)
        copy._shown, copy._pending = self._shown.copy(), self._pending.copy()
        return copy

    def _new_text(self) -> str:
        before = self._tokenizer.decode(self._shown)
        return self._tokenizer.decode(self._shown + self._pending)[len(before) :]


def _build(file: Path, content: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """The library's tokenizer from a parsed tokenizer.json. Raises LessonError if it can't be made."""
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(content))
    except BaseException as error:  # the library is in Rust, and its panics are not an Exception
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise LessonError(f"{file} is not a tokenizer ({str(error)[:200]}). Get the file again.") from None


def _check_text(text: str) -> str:
    """Raise LessonError for anything that is not text, or can't be written as bytes."""
    if not isinstance(text, str):
        raise LessonError(f"This must be text, not {type(text).__name__}.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"U+{ord(text[error.start]):04X}"
        raise LessonError(
            f"The text holds half a character ({half} at position {error.start}), which has no bytes. Remove it, "
            "or read the text again with its right encoding."
        ) from None
    return text


def _byte_ids(content: Mapping[str, Any]) -> frozenset[int]:
    """The ids of single bytes (`<0x0A>`), if the decoder treats them as such."""
    if '"ByteFallback"' not in json.dumps(content.get("decoder")):
        return frozenset()
    vocab = content["model"]["vocab"]  # token → id, or for Unigram a list of (token, score)
    tokens = vocab.items() if isinstance(vocab, dict) else ((token, index) for index, (token, _) in enumerate(vocab))
    return frozenset(index for token, index in tokens if re.fullmatch(r"<0x[0-9A-Fa-f]{2}>", token))


def _unspellable(names: Iterable[str], content: dict[str, Any]) -> dict[str, Any]:
    """The content of a tokenizer.json in which no text spells a control token.

    A BPE model has no merge that makes one. A Unigram model would choose one for the letters of its name, so there it
    gets a name that no text contains.
    """
    model = content["model"]
    if not isinstance(model["vocab"], list):
        return content
    vocab = [(f"{token}\uffff" if token in names else token, score) for token, score in model["vocab"]]
    return {**content, "model": {**model, "vocab": vocab}}


def _any_of(names: Iterable[str]) -> re.Pattern[str]:
    by_length = sorted(names, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, by_length)) or r"(?!)")  # no names: never matches


def _unused_characters(text: str) -> Iterator[str]:
    """Characters of a private-use area, which no text should contain, without those that this text does contain."""
    return (chr(code) for code in range(0xE000, 0xF900) if chr(code) not in text)

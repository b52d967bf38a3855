"""How a widget writes one token: as text, or as bytes if they are not a whole character."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from llmlesson.errors import LessonError
from llmlesson.views.tokens import shown
from llmlesson.widgets.tokenizer_session import rules_of

if TYPE_CHECKING:
    from llmlesson.engine.tokenizer import Tokenizer

CUT = "\N{REPLACEMENT CHARACTER}"  # what decoding turns a part of a character into


def spelled(tokenizer: Tokenizer, token_id: int) -> str:
    """A token as text, with its own blanks; a part of a character as its bytes ("⟨8D⟩"), where they are known."""
    text = tokenizer.decode([token_id], special=True)
    if CUT in text:
        with suppress(LessonError, KeyError):  # of a tokenizer without merges, or a token that isn't spelled in bytes
            return shown(rules_of(tokenizer).raw(tokenizer.token(token_id)))
    return text

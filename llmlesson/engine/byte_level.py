"""How byte-level vocabularies spell bytes: GPT-2's alphabet (`bytes_to_unicode` in OpenAI's gpt-2, src/encoder.py).

A printable byte is written as its own character. The others are written as the characters from U+0100 on.
"""

from __future__ import annotations

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]

BYTE_OF = {chr(byte): byte for byte in _PRINTABLE} | {chr(0x100 + n): byte for n, byte in enumerate(_OTHERS)}


def spelled_bytes(token: str) -> bytes:
    """The bytes of a token in such a vocabulary. Raises KeyError for a character outside the alphabet."""
    return bytes(BYTE_OF[character] for character in token)

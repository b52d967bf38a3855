"""One round of `size_fuzz.py`: random configs of families, saved by transformers, against transformers' cache."""

from __future__ import annotations

import random
import warnings

import pytest
import size_fuzz
from transformers.utils import logging

from llmlesson.sizing.decoder import text_types


@pytest.mark.parametrize("start", range(0, 8, 2))
def test_random_config_of_each_family_equals_its_real_cache(start):
    """Every second family; the script takes them all. A config that transformers can't run is drawn again."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.CRITICAL)
    try:
        for model_type in size_fuzz.FAMILIES[start::8]:
            dice = random.Random(model_type)
            for _ in range(6):
                fields, tokens = size_fuzz.draw(model_type, dice), dice.randint(1, 20)
                with warnings.catch_warnings(action="ignore"):
                    found = size_fuzz.compare(model_type, fields, tokens)
                if found[0][0] != "can't be built":
                    break
            assert {outcome for outcome, _ in found} <= {"agrees", "noted"}, (fields, found)
    finally:
        logging.set_verbosity(verbosity)


def test_language_model_of_a_family_with_towers_is_found():
    for outer in text_types():
        assert size_fuzz.inside(outer) in ("agrees", "remote code", "refused"), outer

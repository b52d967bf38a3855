"""Sizes that papers, logs and blogs published: the right ones are reproduced, and so are the wrong ones, as wrong."""

from __future__ import annotations

import pytest

from llmlesson.sizing import published_claims

CLAIMS = published_claims()
IDS = [f"{index}: {claim.model}" for index, claim in enumerate(CLAIMS)]


def test_the_fixture_is_whole():
    assert len(CLAIMS) == 41
    assert sum(not claim.agrees for claim in CLAIMS) == 4
    assert all(claim.source for claim in CLAIMS)
    # A tolerance is what the claim's own rounding leaves open; only "hundreds of KB" and "~2 GB" leave much.
    loose = [claim for claim in CLAIMS if claim.tolerance_nbytes > 0.03 * claim.claimed_nbytes]
    assert {claim.claimed_text for claim in loose} <= {"hundreds of KB", "~2 GB", "4GB", "9GB", "as much as 1.6 GB"}


@pytest.mark.parametrize(
    "claim", [c for c in CLAIMS if c.agrees], ids=[i for i, c in zip(IDS, CLAIMS, strict=True) if c.agrees]
)
def test_right_claims_are_reproduced(claim):
    assert claim.matches(claim.right_nbytes())
    assert claim.mistake == ""


@pytest.mark.parametrize(
    "claim", [c for c in CLAIMS if not c.agrees], ids=[i for i, c in zip(IDS, CLAIMS, strict=True) if not c.agrees]
)
def test_wrong_claims_are_reproduced_with_their_mistake(claim):
    assert not claim.matches(claim.right_nbytes())
    assert claim.matches(claim.nbytes_with(claim.overrides))
    assert claim.mistake

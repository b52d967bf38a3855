from __future__ import annotations

import pytest
import torch


@pytest.fixture
def ids():
    """ids(n) -> n random token ids of the tiny models."""
    generator = torch.Generator().manual_seed(7)
    return lambda n: torch.randint(3, 131, (n,), generator=generator).tolist()

"""Splitting a product over threads changes nothing but the order of summation."""

from __future__ import annotations

import pytest
import torch

from llmlesson.engine.product import FEW_ROWS, product


@pytest.fixture(params=[1, 2, 3, 5, 8])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("shape", [(60,), (1, 1, 60), (4, 1, 60), (1, FEW_ROWS, 60), (1, FEW_ROWS + 1, 60), (2, 3, 60)])
def test_equals_the_plain_product(threads, shape):
    torch.manual_seed(0)
    x, matrix = torch.randn(shape), torch.randn(60, 77)
    torch.testing.assert_close(product(x, matrix), x @ matrix, atol=1e-5, rtol=1e-5)
    turned = torch.randn(77, 60).T  # not contiguous
    torch.testing.assert_close(product(x, turned), x @ turned, atol=1e-5, rtol=1e-5)


def test_one_row_is_read_in_as_many_parts_as_there_are_threads(threads, monkeypatch):
    seen = []
    bmm = torch.bmm
    monkeypatch.setattr(torch, "bmm", lambda left, right: seen.append(right) or bmm(left, right))
    matrix = torch.randn(120, 7)
    product(torch.randn(1, 120), matrix)
    assert [len(right) for right in seen] == ([threads] if threads > 1 else [])
    assert all(right.untyped_storage().data_ptr() == matrix.untyped_storage().data_ptr() for right in seen)

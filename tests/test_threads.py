"""Small tables are worked on by one thread, and afterwards everything is as it was."""

import numpy as np
import pytest
import torch
from threadpoolctl import ThreadpoolController

from kitt.threads import SMALL, threads_for


@pytest.fixture
def two_threads() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def blas_threads() -> list[int]:
    np.ones((2, 2)) @ np.ones((2, 2))
    return [library["num_threads"] for library in ThreadpoolController().select(user_api="blas").info()]


@pytest.mark.usefixtures("two_threads")
def test_one_thread_for_small_tables_only() -> None:
    before = blas_threads()
    with threads_for(SMALL):
        assert torch.get_num_threads() == 1
        assert set(blas_threads()) == {1}
    assert torch.get_num_threads() == 2
    assert blas_threads() == before
    with threads_for(SMALL + 1):
        assert torch.get_num_threads() == 2
        assert blas_threads() == before


@pytest.mark.usefixtures("two_threads")
def test_an_error_leaves_the_threads_as_they_were() -> None:
    with pytest.raises(ValueError, match="no"), threads_for(10):
        raise ValueError("no")
    assert torch.get_num_threads() == 2

"""What a forecast refuses, and in which words."""

import importlib.util

import pytest

from kitt.errors import MissingExtraError


@pytest.mark.skipif(importlib.util.find_spec("sktime") is not None, reason="sktime is installed here")
def test_sktime_is_no_extra() -> None:
    with pytest.raises(MissingExtraError, match="pip install sktime"):
        importlib.import_module("kitt.forecast.sktime")

"""Decoders that a process came to know."""

from __future__ import annotations

import pytest

from workbench import decoding
from workbench.decoding import decoder, remember


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch):
    monkeypatch.setattr(decoding, "_known", {})


def test_what_is_remembered_is_found_by_its_reference_and_the_last_one_counts():
    remember("tiny", str)
    remember("other", repr)
    assert (decoder("tiny"), decoder("other"), decoder("third")) == (str, repr, None)
    remember("tiny", repr)
    assert decoder("tiny") is repr


def test_tokens_of_an_unknown_model_are_nobody_s():
    remember("", str)
    assert decoder("") is None

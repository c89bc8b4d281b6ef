"""The public names are the truth."""

from __future__ import annotations

import workbench


def test_every_public_name_is_there_and_sorted() -> None:
    assert workbench.__all__ == sorted(workbench.__all__)
    assert len(workbench.__all__) <= 34
    for name in workbench.__all__:
        assert getattr(workbench, name) is not None
    assert set(workbench.__all__) == set(workbench._HOMES)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(workbench, "Workbnech")
    assert "Workbench" in dir(workbench)


def test_public_classes_say_what_they_are() -> None:
    for name in workbench.__all__:
        assert getattr(workbench, name).__doc__, name

"""Which requests a dashboard answers."""

from __future__ import annotations

import pytest

from widgets.dashboard.door import Door

OPEN = Door(has_password=False)
LOCKED = Door(has_password=True)
NAMED = Door(has_password=False, has_link=True, link_host="lab.example")
HUB = Door(has_password=False, has_link=True)


def passes(door: Door, host: str, origin: str | None = None, *, acts: bool = False) -> bool:
    return not door.refusal(host=host, origin=origin, acts=acts)


@pytest.mark.parametrize(
    ("host", "open_", "locked", "named", "hub"),
    [
        ("127.0.0.1:5006", True, True, True, True),
        ("localhost:8888", True, True, True, True),
        ("[::1]:5006", True, True, True, True),
        ("lab.example", False, True, True, True),
        ("LAB.example", False, True, True, True),
        ("evil.example:5006", False, True, False, True),
        ("127.0.0.1.evil.example", False, True, False, True),
        ("10.0.0.7:5006", False, True, False, True),
        ("", False, True, False, True),
        ("[", False, True, False, True),
    ],
)
def test_names_it_answers_to(host: str, open_: bool, locked: bool, named: bool, hub: bool) -> None:
    found = [passes(door, host) for door in (OPEN, LOCKED, NAMED, HUB)]
    assert found == [open_, locked, named, hub]


@pytest.mark.parametrize("door", [OPEN, LOCKED, NAMED, HUB])
@pytest.mark.parametrize(
    ("host", "origin", "may_act"),
    [
        ("127.0.0.1:5006", None, True),
        ("127.0.0.1:5006", "http://127.0.0.1:5006", True),
        ("localhost:5006", "http://LOCALHOST:5006", True),
        ("127.0.0.1:5006", "http://127.0.0.1:8888", False),
        ("127.0.0.1:5006", "http://localhost:5006", False),
        ("127.0.0.1:5006", "https://evil.example", False),
        ("127.0.0.1:5006", "null", False),
        ("127.0.0.1:5006", "", False),
    ],
)
def test_other_pages_may_look_but_do_nothing(
    door: Door, host: str, origin: str | None, may_act: bool
) -> None:
    assert passes(door, host, origin)
    assert passes(door, host, origin, acts=True) is may_act


def test_pages_at_the_link_may_act_whatever_the_proxy_calls_us() -> None:
    assert passes(NAMED, "127.0.0.1:5006", "https://lab.example", acts=True)
    assert not passes(HUB, "127.0.0.1:5006", "https://lab.example", acts=True)


def test_refusals_say_what_to_do() -> None:
    assert "open it as 127.0.0.1" in OPEN.refusal(host="box", origin=None, acts=False)
    refusal = OPEN.refusal(host="127.0.0.1", origin="https://a.example", acts=True)
    assert "link=" in refusal

"""Where a dashboard listens and who may look: what is refused, and in which words."""

from __future__ import annotations

import pytest

from widgets.dashboard.options import check_options, check_password, check_prefix, is_loopback
from workbench.errors import ConfigError


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.10", "::1", "localhost"])
def test_loopback_asks_for_no_password(address: str) -> None:
    assert check_options(address, 0, "", None).password is None


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.0.0.7", "fe80::1", "gpu-box", "127.evil"])
def test_everywhere_else_one_is_made(address: str) -> None:
    first, second = (check_options(address, 0, "", None).password for _ in range(2))
    assert first
    assert second
    assert len(first) >= 20
    assert first != second


@pytest.mark.parametrize("password", ["", "1234567", 12345678, b"longenough"])
@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_password_that_protects_nothing_is_refused(address: str, password: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_password(password, address)
    assert caught.value.field == "password"
    assert not password or str(password) not in str(caught.value)


def test_a_password_is_kept_as_it_is() -> None:
    assert check_password(" päss wörd ", "127.0.0.1") == " päss wörd "


@pytest.mark.parametrize(
    ("given", "path"),
    [("", ""), ("/", ""), ("lab", "/lab"), ("/lab/", "/lab"), ("a/b-c_d.e~f", "/a/b-c_d.e~f")],
)
def test_prefixes_have_one_form(given: str, path: str) -> None:
    assert check_prefix(given) == path


@pytest.mark.parametrize(
    "prefix",
    ["..", "a/../b", "a//b", "a b", "ä", "a?b", "a#b", "%2e", ".git", "(x)", "a*", None, 3],
)
def test_other_prefixes_are_refused(prefix: str) -> None:
    with pytest.raises(ConfigError, match="letters, digits") as caught:
        check_prefix(prefix)
    assert caught.value.field == "prefix"


@pytest.mark.parametrize("port", [-1, 65536, 5006.0, "5006", True, None])
def test_ports_are_numbers(port: int) -> None:
    with pytest.raises(ConfigError) as caught:
        check_options("127.0.0.1", port, "", None)
    assert caught.value.field == "port"


@pytest.mark.parametrize("address", ["", "  ", None, 0])
def test_every_address_at_once_must_be_said(address: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_options(address, 0, "", None)
    assert caught.value.field == "address"


@pytest.mark.parametrize("name", ["localhost.evil.example", "127.0.0.1.evil.example", ""])
def test_names_that_look_like_this_machine_are_not_it(name: str) -> None:
    assert not is_loopback(name)

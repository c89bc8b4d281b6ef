"""Where a browser finds a page when there is a proxy in between."""

from __future__ import annotations

import pytest

from widgets.dashboard.links import HUB_VARIABLE, LINK_VARIABLE, link_host, link_template, page_link
from workbench.errors import ConfigError

HUB = {HUB_VARIABLE: "/user/alice/", "JUPYTERHUB_USER": "alice"}


def resolved(link: str | None, environ: dict[str, str]) -> str | None:
    template = link_template(link, environ)
    return None if template is None else page_link(template, port=5006, page="plot/load")


@pytest.mark.parametrize(
    ("link", "environ", "address"),
    [
        (None, {}, None),
        (None, HUB, "/user/alice/proxy/5006/plot/load"),
        (None, {LINK_VARIABLE: "/x/{port}/{page}"} | HUB, "/x/5006/plot/load"),
        ("https://lab.example/d/{page}", HUB, "https://lab.example/d/plot/load"),
        ("/u/{JUPYTERHUB_USER}/p/{port}/{page}", HUB, "/u/alice/p/5006/plot/load"),
        ("/{{x}}/{page}", {}, "/{x}/plot/load"),
        (None, {HUB_VARIABLE: "/user/{port}/"}, "/user/{port}/proxy/5006/plot/load"),
    ],
)
def test_pages_have_an_address(link: str | None, environ: dict[str, str], address: str) -> None:
    assert resolved(link, environ) == address


def test_values_of_the_environment_are_text() -> None:
    assert resolved("/{X}/{page}", {"X": "{port}{0}"}) == "/{port}{0}/plot/load"


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ("/proxy/{port}", "no {page}"),
        ("/{HOME_OF_NOBODY}/{page}", "{HOME_OF_NOBODY} is not known"),
        ("/{page.__class__}", "is not known"),
        ("/{page!r}", "is not known"),
        ("/{port:>99999999}/{page}", "is not known"),
        ("/{}/{page}", "{} is not known"),
        ("/{page", "expected '}'"),
        ("javascript:alert(1)//{page}", "http://… or https://…"),
        ("//evil.example/{page}", "http://… or https://…"),
        ("lab/{page}", "http://… or https://…"),
    ],
)
def test_other_templates_are_refused(link: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        link_template(link, {})
    assert caught.value.field == "link"
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("link", "host"),
    [
        (None, None),
        ("/proxy/{port}/{page}", None),
        ("https://Lab.example/{page}", "lab.example"),
        ("http://gpu-box:8080/d/{page}", "gpu-box:8080"),
    ],
)
def test_a_link_may_name_a_host(link: str | None, host: str | None) -> None:
    assert link_host(link) == host

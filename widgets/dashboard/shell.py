"""What surrounds the pictures: pages of our own, light, without anything from elsewhere."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jinja2

FOLDER = Path(__file__).parent / "templates"


@functools.cache
def template(name: str) -> jinja2.Template:
    """One of ``templates/``. Whatever is put in is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def render(name: str, **values: Any) -> str:
    """A page without pictures."""
    return template(name).render(**values)

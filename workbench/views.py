"""How the headless package reaches what shows things: the entry-point group ``workbench.views``.

``workbench`` never imports a front end; a package that has one registers it under a name here.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from workbench.errors import ConfigError

GROUP = "workbench.views"


def view(name: str) -> Any:
    """What is registered as ``name``.

    Raises:
        ConfigError: nothing is; lists what there is.
    """
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in found:
        raise ConfigError("view", f"no view {name!r} is installed", allowed=sorted(found))
    return found[name].load()

"""A Prometheus configuration as a tree of YAML nodes, each with the text that it was written as.

A label ``1.10`` does not become 1.1, nor a switch ``on`` true. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from workbench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def compose(text: str) -> yaml.MappingNode:
    allowed = "a Prometheus configuration"
    try:
        document = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        problem = f"it is not YAML: {' '.join(str(error).split())}"
        raise ConfigError("config_file", problem, allowed=allowed) from error
    if document is None or _is_null(document):
        return yaml.MappingNode("tag:yaml.org,2002:map", [], flow_style=False)
    if not isinstance(document, yaml.MappingNode):
        raise ConfigError("config_file", "it is no mapping", allowed=allowed)
    return document


def serialize(node: yaml.Node) -> str:
    text: str = yaml.serialize(node, Dumper=yaml.SafeDumper, allow_unicode=True, width=1000)
    return text


def replace_jobs(
    document: yaml.MappingNode, own: set[str], jobs: Sequence[Mapping[str, Any]]
) -> bool:
    """Whether that changed anything.

    Raises:
        ConfigError: ``scrape_configs`` is no list.
    """
    fresh = [yaml.compose(yaml.safe_dump(dict(job), sort_keys=False)) for job in jobs]
    place, known = _scrape_configs(document)
    stale = [job for job in known if _job_name(job) in own]
    if list(map(serialize, stale)) == list(map(serialize, fresh)):
        return False
    kept = [job for job in known if _job_name(job) not in own]
    key = yaml.ScalarNode("tag:yaml.org,2002:str", "scrape_configs")
    value = yaml.SequenceNode("tag:yaml.org,2002:seq", kept + fresh, flow_style=False)
    document.value[place : place + 1] = [(key, value)]
    return True


def _scrape_configs(document: yaml.MappingNode) -> tuple[int, list[yaml.Node]]:
    """Where they are, or would be, and the jobs in them."""
    for place, (key, value) in enumerate(document.value):
        if key.value == "scrape_configs":
            if isinstance(value, yaml.SequenceNode):
                return place, value.value
            if _is_null(value):
                return place, []
            raise ConfigError("config_file", "its scrape_configs are no list", allowed="a list")
    return len(document.value), []


def _job_name(job: yaml.Node) -> str | None:
    pairs = job.value if isinstance(job, yaml.MappingNode) else ()
    return next((value.value for key, value in pairs if key.value == "job_name"), None)


def _is_null(node: yaml.Node) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")

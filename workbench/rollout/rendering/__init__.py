"""Messages ↔ tokens.

Where the ``renderers`` package knows a model it does the work. For any other model
:class:`TemplateRenderer` uses the model's own chat template, and extends a conversation without
tokenising again what was sampled: it renders a stand-in conversation with and without the new
messages, takes what the new ones add, and appends that to the ids that were sampled.
"""

from workbench.rollout.rendering.known import KnownRenderer
from workbench.rollout.rendering.making import make_renderer
from workbench.rollout.rendering.messages import (
    ROLES,
    Message,
    ToolSpecs,
    check_messages,
    task_messages,
)
from workbench.rollout.rendering.parsing import parse_tagged
from workbench.rollout.rendering.protocol import Bridge, Renderer
from workbench.rollout.rendering.replies import ParsedCall, ParsedReply
from workbench.rollout.rendering.template import TemplateRenderer

__all__ = [
    "ROLES",
    "Bridge",
    "KnownRenderer",
    "Message",
    "ParsedCall",
    "ParsedReply",
    "Renderer",
    "TemplateRenderer",
    "ToolSpecs",
    "check_messages",
    "make_renderer",
    "parse_tagged",
    "task_messages",
]

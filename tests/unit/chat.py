"""A tokenizer of bytes, made here and now: no vocabulary to download, any text goes in and out."""

from __future__ import annotations

import functools

from tests.unit.inprocess import Step
from workbench.rollout.rendering import TemplateRenderer

END = "<|im_end|>"
SPECIAL = ["<|im_start|>", END]

CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

FORGETFUL = (
    "{% for message in messages %}{% if message['role'] != 'assistant' or loop.last %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""Leaves out what the assistant said before, as templates of thinking models do."""

STRICT = (
    "{% for message in messages %}{% if message['role'] not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('unknown role') }}{% endif %}{% endfor %}" + CHATML
)
"""Knows no tools, and no role for them."""

WITH_TOOLS = (
    "{% if tools %}{{ '<|im_start|>system\ntools:' }}{% for tool in tools %}"
    "{{ ' ' + tool['function']['name'] }}{% endfor %}{{ '<|im_end|>\n' }}{% endif %}" + CHATML
)
"""Has a section of its own for tools."""


QWEN3 = [
    *("<|endoftext|>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
    *("<think>", "</think>"),
]
"""Tokens that the renderer of the Qwen3 models asks its tokenizer for."""


@functools.cache
def tokenizer(template: str = CHATML, more: tuple[str, ...] = ()):
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={byte: i for i, byte in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(text, special=True) for text in (*SPECIAL, *more)])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token=END, pad_token=END, chat_template=template
    )


def renderer(template: str = CHATML) -> TemplateRenderer:
    return TemplateRenderer(tokenizer(template))


def ids(text: str) -> list[int]:
    return tokenizer().encode(text, add_special_tokens=False)


def says(*texts: str, **args):
    """Arguments of a simulated engine that says these texts in turn, each to its end."""
    from dataclasses import replace

    (end,) = ids(END)
    return replace(
        Step,
        vocab_size=256 + len(SPECIAL),
        stop_token=end,
        script=tuple(tuple(ids(text)) for text in texts),
        **args,
    )


def call(name: str, **arguments) -> str:
    """A tool call in the words of a model that writes it well."""
    import json

    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"

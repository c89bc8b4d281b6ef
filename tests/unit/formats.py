"""Chat formats in the style of well-known models, with tokenizers that merge as theirs do."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from workbench.rollout.rendering import TemplateRenderer

CALLS_IN_TAGS = (
    '{%- for call in message.tool_calls %}{{- \'\n<tool_call>\n{"name": "\' + call.function.name'
    " + '\", \"arguments\": ' }}{{- call.function.arguments | tojson }}{{- '}\n</tool_call>' }}"
    "{%- endfor %}"
)

QWEN_HEAD = (
    "{%- if tools %}{{- '<|im_start|>system\n' }}"
    "{%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}"
    "{{- '# Tools\n<tools>' }}{%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{%- endfor %}"
    "{{- '\n</tools>\nCalls go into <tool_call></tool_call>.<|im_end|>\n' }}"
    "{%- elif messages[0].role == 'system' %}"
    "{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}{%- endif %}"
)

QWEN_OTHERS = (
    "{%- elif message.role == 'user' or (message.role == 'system' and not loop.first) %}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{%- elif message.role == 'tool' %}"
    "{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}"
    "{%- endif %}{{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\n' }}"
    "{%- endif %}{%- endif %}{%- endfor %}"
)

CHATML_WITH_TOOLS = (
    QWEN_HEAD + "{%- for message in messages %}{%- if message.role == 'assistant' %}"
    "{{- '<|im_start|>assistant\n' + (message.content or '') }}"
    + CALLS_IN_TAGS
    + "{{- '<|im_end|>\n' }}"
    + QWEN_OTHERS
    + "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
"""Qwen 2.5's way: tools in the system message, answers of one turn under one user header."""

THINKING = (
    QWEN_HEAD
    + "{%- set ns = namespace(asked=-1) %}{%- for message in messages %}"
    + "{%- if message.role == 'user' %}{%- set ns.asked = loop.index0 %}{%- endif %}{%- endfor %}"
    + "{%- for message in messages %}{%- if message.role == 'assistant' %}"
    + "{{- '<|im_start|>assistant\n' }}"
    + "{%- if loop.index0 > ns.asked and message.reasoning_content %}"
    + "{{- '<think>\n' + message.reasoning_content + '\n</think>\n\n' }}{%- endif %}"
    + "{{- message.content or '' }}"
    + CALLS_IN_TAGS
    + "{{- '<|im_end|>\n' }}"
    + QWEN_OTHERS
)
"""Qwen 3's way: what was thought before the last question is dropped."""

LAST_QUESTION = "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
THINKING_AT_WILL = THINKING + LAST_QUESTION
THINKING_ALWAYS = THINKING + LAST_QUESTION.replace("assistant\n", "assistant\n<think>\n")

LLAMA = (
    "{{- '<|begin_of_text|>' }}{%- for message in messages %}"
    "{%- if message.role == 'tool' %}{{- '<|start_header_id|>ipython<|end_header_id|>\n\n' }}"
    "{{- message.content | tojson }}{{- '<|eot_id|>' }}"
    "{%- else %}{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' }}"
    "{%- if message.tool_calls %}{%- if message.tool_calls | length != 1 %}"
    "{{- raise_exception('one call at a time') }}{%- endif %}"
    "{%- set call = message.tool_calls[0].function %}"
    '{{- \'{"name": "\' + call.name + \'", "parameters": \' }}{{- call.arguments | tojson }}'
    "{{- '}' }}{%- else %}{{- message.content | trim }}{%- endif %}{{- '<|eot_id|>' }}{%- endif %}"
    "{%- if loop.first and tools %}{{- '<|start_header_id|>user<|end_header_id|>\n\nTools:\n' }}"
    "{%- for tool in tools %}{{- tool | tojson }}{%- endfor %}"
    '{{- \'Answer as {"name": ..., "parameters": ...}<|eot_id|>\' }}{%- endif %}{%- endfor %}'
    "{%- if add_generation_prompt %}"
    "{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"
)
"""Llama 3's way: no newline behind a turn, calls as bare JSON, content trimmed."""

MISTRAL = (
    "{%- if messages[0].role == 'system' %}{%- set system = messages[0].content + '\n\n' %}"
    "{%- set said = messages[1:] %}{%- else %}{%- set system = '' %}{%- set said = messages %}"
    "{%- endif %}{%- set ns = namespace(last=-1) %}{%- for message in said %}"
    "{%- if message.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}"
    "{{- '<s>' }}{%- for message in said %}{%- if message.role == 'user' %}"
    "{%- if tools and loop.index0 == ns.last %}{{- '[AVAILABLE_TOOLS] ' }}{{- tools | tojson }}"
    "{{- '[/AVAILABLE_TOOLS]' }}{%- endif %}{{- '[INST] ' }}"
    "{%- if loop.first %}{{- system }}{%- endif %}{{- message.content + '[/INST]' }}"
    "{%- elif message.role == 'tool' %}{%- if message.tool_call_id | length != 9 %}"
    "{{- raise_exception('ids have 9 characters') }}{%- endif %}"
    "{{- '[TOOL_RESULTS] {\"content\": ' }}{{- message.content | tojson }}"
    "{{- ', \"call_id\": \"' + message.tool_call_id + '\"}[/TOOL_RESULTS]' }}"
    "{%- elif message.tool_calls %}{{- '[TOOL_CALLS] [' }}{%- for call in message.tool_calls %}"
    '{{- \'{"name": "\' + call.function.name + \'", "arguments": \' }}'
    "{{- call.function.arguments | tojson }}{{- ', \"id\": \"' + call.id + '\"}' }}"
    "{%- if not loop.last %}{{- ', ' }}{%- endif %}{%- endfor %}{{- ']</s>' }}"
    "{%- else %}{{- ' ' + message.content + '</s>' }}{%- endif %}{%- endfor %}"
)
"""Mistral's way: tools before the last question, so that the next question moves them."""

GEMMA = (
    "{%- if messages[0].role == 'system' %}{{- raise_exception('no system role') }}{%- endif %}"
    "{{- '<bos>' }}{%- for message in messages %}"
    "{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{- raise_exception('roles must alternate') }}{%- endif %}"
    "{{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) }}"
    "{{- '\n' + (message.content | trim) + '<end_of_turn>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<start_of_turn>model\n' }}{%- endif %}"
)
"""Gemma's way: no system message, no tools, and an end of turn that is not the end token."""

DEEPSEEK = (
    "{{- '<|bos|>' }}{%- if messages[0].role == 'system' %}{{- messages[0].content }}{%- endif %}"
    "{%- if tools %}{{- '## Tools' }}{%- for tool in tools %}{{- '\n' + tool.function.name }}"
    "{%- endfor %}{%- endif %}{%- for message in messages %}{%- if message.role == 'user' %}"
    "{{- '<|User|>' + message.content }}{%- elif message.role == 'tool' %}"
    "{{- '<|tool_output|>' + message.content + '<|tool_output_end|>' }}"
    "{%- elif message.role == 'assistant' %}"
    "{%- if messages[loop.index0 - 1].role != 'tool' %}{{- '<|Assistant|>' }}{%- endif %}"
    "{{- message.content or '' }}{%- for call in message.tool_calls %}"
    '{{- \'<tool_call>{"name": "\' + call.function.name + \'", "arguments": \''
    " + call.function.arguments + '}</tool_call>' }}{%- endfor %}{{- '<|eos|>' }}{%- endif %}"
    "{%- endfor %}{%- if add_generation_prompt and messages[-1].role != 'tool' %}"
    "{{- '<|Assistant|>' }}{%- endif %}"
)
"""DeepSeek's way: no newlines, no header before a turn that follows an answer, text arguments."""

HEADERS_ONLY = (
    "{%- for message in messages %}{{- '<|' + message.role + '|>\n' + message.content }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|assistant|>\n' }}{%- endif %}"
)
"""GLM's way: a turn ends where the next one's header begins."""


@dataclass(frozen=True)
class Format:
    """A template with what its tokenizer and its model need."""

    template: str
    end: str
    special: tuple[str, ...]
    ends: tuple[str, ...] = ()
    has_system: bool = True
    several_calls: bool = True
    spaces: str = ""
    """How a tokenizer writes spaces: as bytes, or by SentencePiece's mark."""


CHATML_TOKENS = ("<|im_start|>", "<tool_call>", "</tool_call>", "<think>", "</think>")
FORMATS = {
    "chatml": Format(CHATML_WITH_TOOLS, "<|im_end|>", CHATML_TOKENS, ("<|endoftext|>",)),
    "thinking": Format(THINKING_AT_WILL, "<|im_end|>", CHATML_TOKENS),
    "thinking always": Format(THINKING_ALWAYS, "<|im_end|>", CHATML_TOKENS),
    "llama": Format(
        LLAMA,
        "<|eot_id|>",
        ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
        ("<|eom_id|>",),
        several_calls=False,
    ),
    "mistral": Format(
        MISTRAL,
        "</s>",
        (
            *("<s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
            *("[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
        ),
        spaces="first",
    ),
    "gemma": Format(
        GEMMA,
        "<end_of_turn>",
        ("<bos>", "<start_of_turn>"),
        ("<eos>",),
        has_system=False,
        spaces="never",
    ),
    "deepseek": Format(
        DEEPSEEK,
        "<|eos|>",
        ("<|bos|>", "<|User|>", "<|Assistant|>", "<|tool_output|>", "<|tool_output_end|>"),
    ),
    "headers only": Format(
        HEADERS_ONLY, "<|user|>", ("<|system|>", "<|assistant|>"), ("<|tool|>",)
    ),
}

CORPUS = (
    "the user asks and the model answers\n\nassistant\n user\n system\n tool\n hello there.\n\n",
    '{"name": "calculator", "arguments": {"expression": "1+1"}}\n{"role": "user", "x": 1}\n\n\n',
    "what is that? It is the answer, and then some. <think>\n\n</think>\n\n  two  spaces   three",
)
"""What merges are learnt from: newlines, spaces and JSON, which tokens cross."""


@functools.cache
def tokenizer(name: str, template: str = "") -> Any:
    """The tokenizer of a format, trained here and now."""
    chosen = FORMATS[name]
    end = (*chosen.ends, chosen.end)[0]
    special = (chosen.end, *chosen.special, *chosen.ends)
    return trained(special, end, template or chosen.template, chosen.spaces)


def trained(special: tuple[str, ...], end: str, template: str | None, spaces: str = "") -> Any:
    """A tokenizer with these special tokens."""
    from tokenizers import AddedToken
    from transformers import PreTrainedTokenizerFast

    made = _pieces(spaces) if spaces else _bytes()
    tokens = dict.fromkeys(special)
    made.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in tokens])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token=end, pad_token=end, chat_template=template
    )


def _bytes() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(CORPUS, trainer)
    return made


def _pieces(scheme: str) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(set("".join(CORPUS)) - {" "} | {"▁"})
    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)}
    vocab |= {letter: 256 + i for i, letter in enumerate(letters)}
    merges = [("▁", "▁"), ("\n", "\n"), ("▁", "t"), ("▁t", "h"), ("▁th", "e"), ("▁", "a")]
    for left, right in merges:
        vocab.setdefault(left + right, len(vocab))
    made = Tokenizer(models.BPE(vocab=vocab, merges=merges, byte_fallback=True, fuse_unk=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return made


@functools.cache
def renderer(name: str) -> TemplateRenderer:
    """The renderer of a format."""
    return TemplateRenderer(tokenizer(name), ids(name, "".join(FORMATS[name].ends)))


def with_template(name: str, template: str) -> TemplateRenderer:
    """The renderer of a format whose template differs."""
    return TemplateRenderer(tokenizer(name, template))


def ids(name: str, text: str) -> list[int]:
    """A text as the model of a format would write it behind its prompt."""
    made: list[int] = tokenizer(name).encode(text, add_special_tokens=False)
    return made

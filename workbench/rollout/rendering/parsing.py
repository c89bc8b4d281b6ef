"""Thoughts and tool calls out of a text. Whatever the text is, reading it does not raise.

A call is read where it stands: a call inside thoughts is none, one that cannot be read keeps its
place and says what is wrong with it, and none is lost without a word.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NoReturn

from workbench.rollout.rendering.replies import ParsedCall, ParsedReply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Protocol

    class Parser(Protocol):
        """A text → what a model said."""

        def __call__(self, text: str, *, in_thoughts: bool = False) -> ParsedReply: ...


Read = tuple[list[ParsedCall], int]
"""Calls, and where the text goes on behind them."""

THINK, THOUGHT = "<think>", "</think>"
CALL, CALLED = "<tool_call>", "</tool_call>"
LISTED = "[TOOL_CALLS]"
BARE = "<|python_tag|>"
MARKS = (THINK, THOUGHT, CALL, CALLED, LISTED, BARE, "[ARGS]", "[CALL_ID]")
"""What a reply is read by; these stay in its text also where they are special tokens."""

_SPACE = re.compile(r"\s*")
_NAMED = re.compile(r"\s*([\w.-]+)\s*(?:\[CALL_ID\]\s*(\w+)\s*)?(?:\[ARGS\])?\s*(?=\{)")
_IDENTITY = re.compile(r"[\w.:-]+")
_LONE = re.compile(r'\s*(?:\[\s*)?\{\s*"(?:name"\s*:|type"\s*:\s*"function")')


def parse_tagged(text: str, *, in_thoughts: bool = False) -> ParsedReply:
    """Read ``<tool_call>{"name": …, "arguments": {…}}</tool_call>`` out of a text.

    Args:
        text: what a model said.
        in_thoughts: whether its prompt ended inside thoughts, as it does for some models.
    """
    return _parse(text, {CALL: _tagged}, in_thoughts)


def parse_listed(text: str, *, in_thoughts: bool = False) -> ParsedReply:
    """Read ``[TOOL_CALLS] [{"name": …, "arguments": {…}}, …]``, or ``[TOOL_CALLS]name{…}``."""
    return _parse(text, {LISTED: _listed}, in_thoughts)


def parse_bare(text: str, *, in_thoughts: bool = False) -> ParsedReply:
    """Read a reply that is nothing but ``{"name": …, "parameters": {…}}``, or several of them.

    Behind a ``<|python_tag|>`` nothing but calls is expected. Without one, an object that has
    neither parameters nor arguments is an answer that happens to be JSON.
    """
    thoughts, start = _thoughts_at_start(text, in_thoughts)
    if _is_lone_call(text, start):
        return ParsedReply("", tuple(_calls(text, start)), thoughts)
    words, _, behind = text[start:].partition(BARE)
    return ParsedReply(words.strip(), tuple(_calls(behind, 0)), thoughts)


def _is_lone_call(text: str, start: int) -> bool:
    if not _LONE.match(text, start):
        return False
    value, _, problem = _json_at(text, _skip(text, start))
    first = value[0] if isinstance(value, list) else value
    return bool(problem) or "parameters" in first or "arguments" in first


def parser_for(template: str) -> Parser:
    """The parser of the form that a chat template shows."""
    if LISTED in template:
        return parse_listed
    if CALL not in template and (BARE in template or '"parameters": ' in template):
        return parse_bare
    return parse_tagged


def _parse(
    text: str, forms: dict[str, Callable[[str, int], Read]], in_thoughts: bool
) -> ParsedReply:
    thoughts, position = _thoughts_at_start(text, in_thoughts)
    pondered = [thoughts] if thoughts else []
    words: list[str] = []
    calls: list[ParsedCall] = []
    marks = re.compile("|".join(re.escape(mark) for mark in (THINK, *forms)))
    while found := marks.search(text, position):
        words.append(text[position : found.start()])
        position = found.end()
        if found.group() != THINK:
            read, position = forms[found.group()](text, position)
            calls += read
        elif (end := text.find(THOUGHT, position)) < 0:
            words.append(THINK)  # a mention: nothing was thought
        else:
            pondered.append(text[position:end].strip())
            position = end + len(THOUGHT)
    words.append(text[position:])
    return ParsedReply("".join(words).strip(), tuple(calls), "\n".join(pondered))


def _thoughts_at_start(text: str, in_thoughts: bool) -> tuple[str, int]:
    """What a reply begins by thinking, and where its words begin."""
    start = _skip(text, 0)
    if text.startswith(THINK, start):
        start += len(THINK)
    elif not in_thoughts:
        return "", 0
    end = text.find(THOUGHT, start)
    if end < 0:  # it was cut, or ended, inside them
        return text[start:].strip(), len(text)
    return text[start:end].strip(), end + len(THOUGHT)


def _tagged(text: str, start: int) -> Read:
    """The call behind a ``<tool_call>``."""
    start = _skip(text, start)
    value, end, problem = _json_at(text, start)
    if not problem:
        closing = _skip(text, end)
        if text.startswith(CALLED, closing):
            return [_call(value, text[start:end])], closing + len(CALLED)
        if closing == len(text) or text.startswith(CALL, closing):
            return [_unclosed(text[start:end])], closing
        problem = f"something follows the JSON: {text[end : end + 20]!r}"
    closing, opening = text.find(CALLED, start), text.find(CALL, start)
    if closing < 0 or 0 <= opening < closing:
        end = opening if opening >= 0 else len(text)
        return [_unclosed(text[start:end].strip())], end
    raw = text[start:closing].strip()
    return [ParsedCall("", None, raw, f"the call is not JSON: {problem}")], closing + len(CALLED)


def _unclosed(raw: str) -> ParsedCall:
    return ParsedCall("", None, raw, f"the call has no closing {CALLED}")


def _listed(text: str, start: int) -> Read:
    """The calls behind a ``[TOOL_CALLS]``: a list, one object, or a name with arguments."""
    start = _skip(text, start)
    if named := _NAMED.match(text, start):
        value, end, problem = _json_at(text, named.end())
        raw = text[start:end].strip()
        if problem:
            return [ParsedCall(named[1], None, raw, f"the arguments are not JSON: {problem}")], end
        return [_call({"name": named[1], "arguments": value, "id": named[2]}, raw)], end
    return _calls(text, start), len(text)


def _calls(text: str, start: int) -> list[ParsedCall]:
    """Calls up to the end: a list of objects, or objects one after the other."""
    start = _skip(text, start)
    if not text.startswith("[", start):
        return list(_objects(text, start))
    value, end, problem = _json_at(text, start)
    if problem:  # then those before the place where it breaks off
        return list(_objects(text, start + 1))
    if not value:
        return [ParsedCall("", None, text[start:end], "the list of calls is empty")]
    return [_call(one, json.dumps(one, ensure_ascii=False)) for one in value]


def _objects(text: str, start: int) -> Iterator[ParsedCall]:
    """Objects one after the other, up to the first that cannot be read."""
    while (start := _skip(text, start)) < len(text):
        value, end, problem = _json_at(text, start)
        raw = text[start:end].strip()
        if problem:
            yield ParsedCall("", None, raw, f"the call is not JSON: {problem}")
            return
        yield _call(value, raw)
        start = _skip(text, end)
        if text.startswith((";", ","), start):
            start += 1


def _skip(text: str, start: int) -> int:
    """Behind the space that begins here."""
    found = _SPACE.match(text, start)
    return found.end() if found else start


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


_DECODER = json.JSONDecoder(parse_constant=_no_number)


def _json_at(text: str, start: int) -> tuple[Any, int, str]:
    """The value that begins here, its end, and why there is none (then the end is the text's)."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        return None, len(text), f"{error.msg} at character {error.pos - start}"
    except (ValueError, RecursionError) as error:
        return None, len(text), str(error)
    if not is_sound(value):
        return None, len(text), "an escape in it stands for half a character"
    return value, end, ""


def is_sound(value: Any) -> bool:
    """Whether a value can be written down as JSON again, in characters that there are."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return False
    return True


def _call(value: Any, raw: str) -> ParsedCall:
    """A call out of what was read."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return ParsedCall("", None, raw, 'the call has no "name"')
    field = "parameters" if "parameters" in value and "arguments" not in value else "arguments"
    arguments = as_arguments(value.get(field, {}))
    name, given = value["name"], value.get("id")
    identity = given if isinstance(given, str) and _IDENTITY.fullmatch(given) else ""
    if arguments is None:
        return ParsedCall(name, None, raw, f'"{field}" is not an object', identity)
    return ParsedCall(name, arguments, raw, "", identity)


def as_arguments(value: Any) -> dict[str, Any] | None:
    """Arguments as an object: also one that was written down as a string. None if it is none."""
    if isinstance(value, str):
        value, _, problem = _json_at(value, _skip(value, 0))
        if problem:
            return None
    return value if isinstance(value, dict) else None

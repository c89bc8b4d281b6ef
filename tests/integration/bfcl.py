"""Tasks, tools and the executor of the Berkeley Function Calling Leaderboard's package."""

from __future__ import annotations

import ast
import copy
import functools
import importlib
import inspect
import json
from pathlib import Path

import bfcl_eval
from bfcl_eval.constants.executable_backend_config import (
    CLASS_FILE_PATH_MAPPING,
    MULTI_TURN_FUNC_DOC_FILE_MAPPING,
    STATELESS_CLASSES,
)
from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker, multi_turn_utils

from workbench.rollout.tools import tools_of

DATA = Path(bfcl_eval.__file__).parent / "data"
NAME = "BFCL_v4_multi_turn_base.json"
JSON_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": None}


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@functools.cache
def tasks() -> dict[str, dict]:
    """By id; ``reference`` are the calls of each turn, as they are written in Python."""
    references = {r["id"]: r["ground_truth"] for r in lines(DATA / "possible_answer" / NAME)}
    return {t["id"]: {**t, "reference": references[t["id"]]} for t in lines(DATA / NAME)}


def class_named(name: str) -> type:
    return getattr(importlib.import_module(CLASS_FILE_PATH_MAPPING[name]), name)


@functools.cache
def specs_of(name: str) -> dict[str, dict]:
    """What models are shown of a class, in OpenAI's form."""
    docs = lines(DATA / "multi_turn_func_doc" / MULTI_TURN_FUNC_DOC_FILE_MAPPING[name])
    keys = ("name", "description", "parameters")
    return {doc["name"]: json_schema({key: doc[key] for key in keys}) for doc in docs}


def json_schema(doc):
    """Their types by the names that JSON Schema has for them."""
    if isinstance(doc, list):
        return [json_schema(item) for item in doc]
    if not isinstance(doc, dict):
        return doc
    made = {key: json_schema(value) for key, value in doc.items()}
    kind = doc.get("type")
    if isinstance(kind, str) and kind in JSON_TYPES:
        made["type"] = JSON_TYPES[kind]
        if made["type"] is None:
            del made["type"]
    return made


def sources(task: dict, made: dict[str, object]) -> list:
    """A source of tools for each of the task's APIs; ``made`` gets the objects."""

    def make(name: str, fields):
        api = class_named(name)()
        if name not in STATELESS_CLASSES:
            api._load_scenario(copy.deepcopy(fields["initial_config"].get(name, {})))
        made[name] = api
        return api

    return [
        tools_of(functools.partial(make, name), specs=specs_of(name))
        for name in task["involved_classes"]
    ]


def as_call(task: dict, written: str) -> tuple[str, dict]:
    """A call in Python as a name and arguments by name."""
    call = ast.parse(written, mode="eval").body
    given = [ast.literal_eval(value) for value in call.args]
    named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    (method,) = (
        getattr(class_named(name), call.func.id)
        for name in task["involved_classes"]
        if call.func.id in specs_of(name)
    )
    bound = inspect.signature(method).bind(None, *given, **named)
    return call.func.id, dict(list(bound.arguments.items())[1:])


def executed(task: dict, calls: list[str], run: str) -> tuple[list[str], dict[str, object]]:
    """What the package's own executor answers, and its objects in the end."""
    answers, apis = multi_turn_utils.execute_multi_turn_func_call(
        calls, task["initial_config"], task["involved_classes"], run, task["id"]
    )
    for name, value in list(vars(multi_turn_utils).items()):
        if any(value is api for api in apis.values()):
            delattr(multi_turn_utils, name)  # it keeps them for the next turn
    return answers, apis


def difference(one: object, other: object) -> dict:
    """Between two objects of a class, by the package's own checker; empty when there is none."""
    same, differences = multi_turn_checker._compare_instances(one, other)
    assert same != bool(differences)
    return differences


def as_python(name: str, arguments: dict) -> str:
    """A call as the package's executor takes it."""
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def calls_only(task: dict, names: list[str], count: int) -> dict:
    """Makes a model write so many calls of these tools, with words of the reference in them."""
    written = [as_call(task, line)[1] for turn in task["reference"] for line in turn]
    words = sorted({v for given in written for v in given.values() if isinstance(v, str)})
    shown = {n: s for api in task["involved_classes"] for n, s in specs_of(api).items()}
    forms = [
        {
            "type": "object",
            "properties": {
                "name": {"const": name},
                "arguments": _within(shown[name]["parameters"], words or ["none"]),
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for name in names
    ]
    tag = {
        "type": "tag",
        "begin": "<tool_call>",
        "content": {"type": "json_schema", "json_schema": {"anyOf": forms}},
        "end": "</tool_call>",
    }
    form = {"type": "sequence", "elements": [tag] * count}
    structure = json.dumps({"type": "structural_tag", "format": form})
    return {"structural_tag": structure, "disable_any_whitespace": True}


def _within(schema: dict, words: list[str]) -> dict:
    """A schema of which every text is one of these words, and every list is short."""
    kind = schema.get("type")
    if kind == "string":
        return {"enum": schema.get("enum", words)}
    if kind == "array":
        return {"type": "array", "items": _within(schema["items"], words), "maxItems": 2}
    if kind == "object":
        properties = {k: _within(v, words) for k, v in schema.get("properties", {}).items()}
        required = schema.get("required", [])
        return {
            "type": "object",
            "properties": {k: v for k, v in properties.items() if k in required},
            "required": required,
            "additionalProperties": False,
        }
    return {"type": kind}

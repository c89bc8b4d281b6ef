"""Errors cross Ray: each survives pickling with all that it knows."""

from __future__ import annotations

import inspect
import pickle

import pytest

from workbench import errors
from workbench.errors import (
    ConfigError,
    DeadlineError,
    FieldError,
    ReplicaDiedError,
    ReplicaStartError,
    RequestError,
    TaskError,
    WorkbenchError,
)

CLASSES = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, WorkbenchError) and cls.__module__ == errors.__name__
]


def example(cls):
    """An error of this class with everything that its constructor takes."""
    if issubclass(cls, FieldError):
        return cls("max_tokens", "0", allowed=["1", "2"])
    if cls is ReplicaStartError:
        return cls("replica-0", "out of memory", log_tail="line 1\nline 2")
    if cls is ReplicaDiedError:
        return cls("replica-0", "killed")
    return cls("what happened")


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_every_error_survives_pickling_with_its_attributes(cls, protocol):
    error = example(cls)
    error.add_note("seen on node 3")
    copy = pickle.loads(pickle.dumps(error, protocol))
    assert type(copy) is cls
    assert (str(copy), copy.args) == (str(error), error.args)
    assert vars(copy) == vars(error)


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_is_in_the_tree_of_the_docstring(cls):
    assert cls.__name__ in errors.__doc__
    assert cls.__doc__


def test_an_error_of_a_users_own_survives_too():
    copy = pickle.loads(pickle.dumps(Own("a", code=3)))
    assert (copy.code, str(copy)) == (3, "own: a")


class Own(WorkbenchError):
    def __init__(self, what, *, code):
        self.code = code
        super().__init__(f"own: {what}")


@pytest.mark.parametrize("cls", [ConfigError, RequestError, TaskError])
def test_a_refused_field_is_named_with_what_is_allowed(cls):
    error = cls("replicas", "-1", allowed="a whole number from 1")
    assert str(error) == "replicas: -1 (allowed: a whole number from 1)"
    assert isinstance(error, ValueError)


def test_allowed_values_may_be_anything_that_can_be_listed():
    assert ConfigError("n", "0", allowed=iter([1, 2])).allowed == "1, 2"
    assert str(ConfigError("n", "0")) == "n: 0"


def test_a_start_error_shows_the_last_log_lines():
    assert str(ReplicaStartError("replica-0", "boom", log_tail="line 2")) == (
        "replica-0 did not start: boom\nlast log lines of replica-0:\nline 2"
    )
    assert str(ReplicaStartError("replica-0", "boom")) == "replica-0 did not start: boom"


def test_a_deadline_is_a_timeout():
    assert isinstance(DeadlineError("late"), TimeoutError)
    assert str(DeadlineError("late")) == "late"


def test_a_death_may_have_no_known_cause():
    assert str(ReplicaDiedError("replica-0")) == "replica-0 died"

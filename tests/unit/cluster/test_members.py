"""The replicas of a pool by name: none is given twice, and who asks for another is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.cluster.members import Members
from workbench.errors import ConfigError
from workbench.supervision import RestartBudget, SupervisionConfig
from workbench.types import ReplicaState


def members(count=0):
    made = Members()
    for _ in range(count):
        make(made)
    return made


def make(made):
    return made.make(RestartBudget(SupervisionConfig()))


def ids(found):
    return [member.replica_id for member in found]


def test_a_new_one_waits_for_its_place_and_does_not_serve():
    made = members(2)
    member = make(made)
    assert (member.replica_id, member.status.state) == ("replica-2", ReplicaState.STARTING)
    assert made.ready() == []
    member.is_known = True
    assert made.ready() == [member]
    member.note(stage="", version=3)
    assert (member.status.replica_id, member.status.version) == ("replica-2", 3)


def test_those_named_come_in_the_order_of_their_names_each_once():
    made = members(3)
    assert ids(made.some(None)) == ["replica-0", "replica-1", "replica-2"]
    assert ids(made.some("replica-1")) == ["replica-1"]
    assert ids(made.some(["replica-2", "replica-0", "replica-2"])) == ["replica-2", "replica-0"]
    assert made.some([]) == []


@pytest.mark.parametrize("named", ["replica-3", ["replica-0", "replica-3"], ["r"]])
def test_an_unknown_one_is_refused_with_those_that_there_are(named):
    with pytest.raises(ConfigError) as refused:
        members(2).some(named)
    assert (refused.value.field, refused.value.allowed) == ("replica_id", "replica-0, replica-1")


def test_members_may_leave_while_they_are_gone_through():
    made = members(4)
    for member in made:
        made.forget(member)
    assert len(made) == 0


@given(st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=30))
def test_no_id_is_ever_given_twice(story):
    """``story``: one more, or the n-th leaves."""
    made, given_ids, there = members(), [], []
    for step in story:
        if step is None:
            there.append(make(made))
            given_ids.append(there[-1].replica_id)
        elif step < len(there):
            gone = there.pop(step)
            made.forget(gone)
            made.forget(gone)
            assert gone not in made
    assert len(set(given_ids)) == len(given_ids)
    assert list(made) == there
    assert all(member in made for member in there)

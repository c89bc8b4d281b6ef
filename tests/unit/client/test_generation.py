"""A call's book-keeping over its attempts: budget, alignment and version spans always hold."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.client.generation import Generation
from workbench.errors import RequestError
from workbench.types import FinishReason, TokenDelta, VersionSpan


def generation(prompt=(1, 2, 3), **sampling):
    return Generation("s", list(prompt), sampling)


def delta(ids, *, version=0, finish=None, spans=(), **known):
    return TokenDelta(
        "r",
        list(ids),
        [-0.1 * i for i in ids],
        version,
        finish_reason=finish,
        version_spans=tuple(VersionSpan(*span) for span in spans),
        **known,
    )


def assert_covers(spans, size):
    """The spans follow each other without gap or overlap, and neighbours differ."""
    edge = 0
    for before, span in zip((None, *spans), spans, strict=False):
        assert span.start == edge
        assert span.end > span.start
        assert before is None or before.version != span.version
        edge = span.end
    assert edge == size


@settings(max_examples=300, deadline=None)
@given(
    budget=st.integers(1, 30),
    attempts=st.lists(
        st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=6), max_size=8
    ),
    stamped=st.booleans(),
)
def test_the_budget_holds_over_any_attempts_and_all_stays_aligned(budget, attempts, stamped):
    """Each attempt is a list of (tokens, version) deltas from an engine that heeds what it got."""
    call = generation(max_tokens=budget)
    told = []
    for deltas in attempts:
        if call.finished:
            break
        request = call.begin_attempt("replica-0")
        left = request.sampling["max_tokens"]
        assert left == budget - len(told) > 0
        assert request.prompt_ids == [1, 2, 3, *told]
        spans, position = [], 0
        for wanted, version in deltas:
            size = min(wanted, left)
            ids = [100 + len(told) + i for i in range(size)]
            left -= size
            if size:
                spans.append((version, position, position + size))
            position += size
            over = left == 0
            call.add(
                delta(
                    ids,
                    version=version,
                    finish=FinishReason.LENGTH if over else None,
                    spans=spans if over and not stamped else (),
                )
            )
            told += ids
            if over:
                break
    if not call.finished:
        call.begin_attempt("replica-1")
        call.add(delta([], finish=FinishReason.STOP))
    output = call.output()
    assert output.token_ids == told
    assert len(output.token_ids) == len(output.log_probs) <= budget
    assert_covers(output.version_spans, len(told))


def test_a_resumed_attempt_asks_for_the_rest_only():
    call = generation(max_tokens=10, min_tokens=5, temperature=0.7)
    call.begin_attempt("replica-0")
    call.add(delta([7, 8, 9]))
    request = call.begin_attempt("replica-1")
    assert request.prompt_ids == [1, 2, 3, 7, 8, 9]
    assert request.sampling == {"max_tokens": 7, "min_tokens": 2, "temperature": 0.7}


def test_every_attempt_has_an_id_of_its_own():
    call = generation()
    assert call.begin_attempt("a").request_id != call.begin_attempt("b").request_id


def test_the_callers_parameters_and_prompt_are_left_alone():
    prompt, sampling = [1, 2], {"max_tokens": 9}
    call = Generation("s", prompt, sampling)
    call.begin_attempt("a")
    call.add(delta([5]))
    call.begin_attempt("b").sampling["max_tokens"] = 1
    assert (prompt, sampling) == ([1, 2], {"max_tokens": 9})


def test_a_full_budget_is_an_end_even_if_the_replica_dies_before_it_says_so():
    call = generation(max_tokens=2)
    call.begin_attempt("replica-0")
    call.add(delta([7, 8]))
    assert call.finished
    assert call.output().finish_reason is FinishReason.LENGTH


def test_the_engines_own_reason_wins_over_a_full_budget():
    call = generation(max_tokens=2)
    call.begin_attempt("replica-0")
    call.add(delta([7, 8]))
    call.add(delta([], finish=FinishReason.STOP))
    assert call.output().finish_reason is FinishReason.STOP


def test_without_a_budget_none_is_sent():
    assert generation().begin_attempt("a").sampling["max_tokens"] is None


def test_verls_name_for_the_budget_is_understood():
    assert generation(max_new_tokens=4).begin_attempt("a").sampling == {"max_tokens": 4}


@pytest.mark.parametrize("budget", [0, -1, 2.5, "8"])
def test_a_budget_that_is_none_is_refused_by_name(budget):
    with pytest.raises(RequestError) as refused:
        generation(max_tokens=budget)
    assert refused.value.field == "sampling_params['max_tokens']"


def test_spans_change_where_the_version_does():
    call = generation()
    call.begin_attempt("a")
    call.add(delta([1, 2], version=0))
    call.add(delta([3], version=0))
    call.add(delta([4], version=2, finish=FinishReason.STOP))
    assert call.output().version_spans == (VersionSpan(0, 0, 3), VersionSpan(2, 3, 4))


def test_the_engines_own_spans_replace_those_of_its_attempt_only():
    call = generation()
    call.begin_attempt("a")
    call.add(delta([1, 2], version=0))
    call.begin_attempt("b")
    call.add(delta([3, 4], version=1))
    call.add(delta([5], version=1, finish=FinishReason.STOP, spans=[(0, 0, 1), (1, 1, 3)]))
    assert call.output().version_spans == (VersionSpan(0, 0, 3), VersionSpan(1, 3, 5))


def test_an_empty_generation_has_no_spans_and_a_reason():
    call = generation()
    call.begin_attempt("a")
    call.add(delta([], finish=FinishReason.STOP))
    output = call.output()
    assert (output.token_ids, output.log_probs, output.version_spans) == ([], [], ())
    assert output.extra_fields == {}


def test_version_zero_is_a_version():
    call = generation()
    call.begin_attempt("a")
    call.add(delta([1], version=0))
    call.add(delta([2], version=3, finish=FinishReason.STOP))
    assert call.output().extra_fields == {
        "min_global_steps": 0,
        "max_global_steps": 3,
        "global_steps": 3,
    }


def test_the_output_tells_of_attempts_cache_and_timing():
    call = generation()
    call.begin_attempt("a")
    call.add(delta([1], num_cached_tokens=2, queue_s=0.5, first_token_s=1.5, num_preempted=1))
    call.begin_attempt("b")
    call.add(delta([2], num_cached_tokens=9, queue_s=9.0, first_token_s=9.0, num_preempted=2))
    call.add(delta([3], num_preempted=3, finish=FinishReason.STOP))
    output = call.output()
    assert (output.attempts, output.replica_id) == (2, "b")
    assert output.num_cached_tokens == 2
    assert (output.timing.queue_s, output.timing.first_token_s) == (0.5, 1.5)
    assert output.num_preempted == 4, "once in the first attempt, three times in the second"


def test_what_no_engine_told_is_unknown():
    call = generation()
    call.begin_attempt("a")
    call.add(delta([1], finish=FinishReason.STOP))
    output = call.output()
    assert (output.num_cached_tokens, output.num_preempted) == (None, None)


@pytest.mark.parametrize(
    ("finish", "verls"), [(FinishReason.ABORT, "aborted"), (FinishReason.LENGTH, "completed")]
)
def test_verls_stop_reason_is_derived(finish, verls):
    call = generation()
    call.begin_attempt("a")
    call.add(delta([1], finish=finish))
    assert call.output().stop_reason == verls


@pytest.mark.parametrize(
    ("prompt_ids", "complaint"),
    [
        ({"input_ids": [1]}, "is a dict .*such as its 'input_ids'"),
        ("text", "'text' .*a sequence of token ids"),
        (3, "3 .*a sequence of token ids"),
    ],
)
def test_a_prompt_that_is_no_sequence_of_ids_is_refused(prompt_ids, complaint):
    with pytest.raises(RequestError, match=complaint) as refused:
        Generation("s", prompt_ids, {})
    assert refused.value.field == "prompt_ids"

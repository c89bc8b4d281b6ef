"""Who runs, on which blocks, who has to go, and what a step costs; without a clock."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from workbench.engines.simulated import SimulatedArgs
from workbench.engines.simulated.scheduler import Scheduler, Sequence


def scheduler_of(*lengths, priorities=(), **args):
    """A scheduler with requests of these lengths; their tokens have nothing in common."""
    made = Scheduler(SimulatedArgs(**{"block_tokens": 4, "step_s": 1.0, **args}))
    for i, length in enumerate(lengths):
        add(made, f"r{i}", [100 * i + j for j in range(length)], *priorities[i : i + 1])
    return made


def add(made, name, tokens, priority=0):
    sequence = Sequence(name, list(tokens), priority)
    made.add(sequence)
    return sequence


def step(made, **admit):
    """One step, after which everybody who ran has one more token."""
    done = made.schedule(**admit)
    made.check()
    for sequence in done.running:
        sequence.tokens.append(7)
    return done


def names(sequences):
    return [sequence.request_id for sequence in sequences]


def run_to_end(made, sequence, tokens):
    for _ in range(tokens):
        step(made)
    made.remove(sequence)
    return sequence


def test_the_batch_is_bounded_and_the_others_wait_in_order_of_arrival():
    made = scheduler_of(3, 3, 3, max_num_seqs=2)
    assert names(step(made).running) == ["r0", "r1"]
    assert names(made.waiting) == ["r2"]
    made.remove(made.running[0])
    assert names(step(made).running) == ["r1", "r2"]


def test_the_lowest_priority_comes_first_then_arrival():
    made = scheduler_of(3, 3, 3, 3, priorities=[1, 0, 1, -1], max_num_seqs=3)
    assert names(step(made).admitted) == ["r3", "r1", "r0"]


def test_nobody_is_admitted_when_nobody_may():
    made = scheduler_of(3)
    assert step(made, admit=False).running == ()
    assert names(step(made).running) == ["r0"]


def test_a_step_costs_by_request_and_by_computed_prompt_token():
    made = scheduler_of(
        5, 6, step_s=1.0, step_s_per_request=0.25, prefill_s_per_token=0.125, max_num_seqs=2
    )
    assert step(made).duration_s == 1.0 + 2 * 0.25 + 11 * 0.125
    assert step(made).duration_s == 1.0 + 2 * 0.25
    made.remove(made.running[0])
    assert step(made).duration_s == 1.0 + 0.25


def test_a_later_request_reuses_full_blocks_of_prompt_and_completion():
    made = scheduler_of()
    first = run_to_end(made, add(made, "a", range(6)), 4)
    assert len(first.tokens) == 10
    turn = add(made, "b", [*first.tokens, 1, 2, 3])
    assert step(made).prefill_tokens == 13 - 8
    assert turn.cached_tokens == 8
    assert (made.prompt_tokens, made.cached_prompt_tokens) == (6 + 13, 8)


def test_the_last_sampled_token_was_never_computed_and_is_not_cached():
    made = scheduler_of()
    first = run_to_end(made, add(made, "a", range(6)), 2)
    assert len(first.tokens) == 8
    turn = add(made, "b", [*first.tokens, 1])
    step(made)
    assert turn.cached_tokens == 4


def test_at_least_the_last_prompt_token_is_computed():
    made = scheduler_of()
    run_to_end(made, add(made, "a", range(8)), 1)
    again = add(made, "b", range(8))
    assert step(made).prefill_tokens == 4
    assert again.cached_tokens == 4


def test_requests_of_one_step_share_their_prompt():
    made = scheduler_of()
    group = [add(made, f"n{i}", range(9)) for i in range(3)]
    assert step(made).prefill_tokens == 9 + 1 + 1
    assert [sequence.cached_tokens for sequence in group] == [0, 8, 8]
    assert made.cache.referenced == 2 + 3


def test_a_block_is_reused_only_behind_the_same_tokens():
    made = scheduler_of()
    run_to_end(made, add(made, "a", [1, 1, 1, 1, 2, 2, 2, 2]), 1)
    other = add(made, "b", [9, 9, 9, 9, 2, 2, 2, 2, 3])
    step(made)
    assert other.cached_tokens == 0


def test_without_prefix_caching_nothing_is_reused():
    made = scheduler_of(prefix_caching=False)
    run_to_end(made, add(made, "a", range(8)), 9)
    again = add(made, "b", range(8))
    assert step(made).prefill_tokens == 8
    assert again.cached_tokens == 0


def test_another_version_reuses_nothing_and_the_same_one_does():
    made = scheduler_of()
    cached = []
    for version in (0, 0, 1, 1, 2):
        made.set_version(version)
        turn = run_to_end(made, add(made, "r", range(9)), 1)
        cached.append(turn.cached_tokens)
    assert cached == [0, 8, 0, 8, 0]


def test_the_first_version_is_0():
    made = scheduler_of()
    run_to_end(made, add(made, "a", range(9)), 1)
    made.set_version(0)
    assert run_to_end(made, add(made, "b", range(9)), 1).cached_tokens == 8


def test_who_comes_back_under_another_version_reuses_nothing_of_its_own_older_blocks():
    made = scheduler_of(4, 4, kv_blocks=3)
    first, second = made.waiting
    step(made)
    step(made)
    made.remove(first)
    made.set_version(1)
    assert second.num_preempted == 1
    assert step(made).prefill_tokens == len(second.tokens) - 1 == 5


def test_what_runs_over_an_update_fills_blocks_that_the_new_version_never_sees():
    made = scheduler_of()
    kept = add(made, "a", [1, 2])
    step(made)
    made.set_version(1)
    run_to_end(made, kept, 9)
    assert kept.num_preempted == 0
    turn = add(made, "b", kept.tokens)
    step(made)
    assert turn.cached_tokens == 0


def test_recomputing_pushes_everybody_out_and_charges_for_the_whole_context():
    made = scheduler_of(5, 6)
    step(made)
    kept = list(made.running)
    made.set_version(1, recompute=True)
    made.check()
    assert (made.running, made.cache.referenced, made.cache.resting) == ([], 0, 0)
    assert step(made).prefill_tokens == 6 + 7
    assert names(made.running) == ["r0", "r1"]
    assert [sequence.num_preempted for sequence in kept] == [1, 1]
    assert (made.num_preempted, made.prompt_tokens) == (2, 11)


def test_who_finds_no_block_pushes_out_the_youngest():
    made = scheduler_of(4, 4, kv_blocks=3)
    oldest, youngest = made.waiting
    assert names(step(made).running) == ["r0", "r1"]
    assert names(step(made).running) == ["r0"]
    assert (oldest.num_preempted, youngest.num_preempted) == (0, 1)
    assert names(made.waiting) == ["r1"]
    assert made.num_preempted == 1


def test_the_youngest_pushes_out_itself():
    made = scheduler_of(6, 4, kv_blocks=3)
    step(made)
    assert names(step(made).running) == ["r0"]
    assert made.waiting[0].num_preempted == 1


def test_the_least_urgent_is_pushed_out_before_the_youngest():
    made = scheduler_of(4, 4, priorities=[1, 0], kv_blocks=3)
    step(made)
    assert names(step(made).running) == ["r1"]


def test_a_step_that_pushes_out_admits_nobody():
    made = scheduler_of(4, 8, kv_blocks=3)
    step(made)
    add(made, "urgent", [1], priority=-1)
    pushed = step(made)
    assert (names(pushed.running), names(pushed.admitted)) == (["r0"], [])
    assert names(step(made).admitted) == ["urgent"]


def test_the_first_in_the_queue_holds_up_those_behind_it():
    made = scheduler_of(4, 9, 1, kv_blocks=3)
    assert names(step(made).running) == ["r0"]


def test_a_preempted_request_is_computed_anew_from_what_is_still_cached():
    made = scheduler_of(4, 7, kv_blocks=4, prefill_s_per_token=1.0, step_s=0.0)
    first, second = made.waiting
    step(made)
    while not second.num_preempted:
        step(made)
    made.remove(first)
    assert len(second.tokens) == 9
    again = step(made)
    assert names(again.admitted) == ["r1"]
    assert again.duration_s == 9 - 8
    assert second.cached_tokens == 0
    assert made.prompt_tokens == 11


def test_a_removed_request_leaves_nothing_behind_but_full_blocks():
    made = scheduler_of(6, 3, max_num_seqs=1, kv_blocks=5)
    running, waiting = made.waiting
    step(made)
    made.remove(waiting)
    made.remove(running)
    made.check()
    assert not made.busy
    assert (made.cache.referenced, made.cache.resting, made.cache.free) == (0, 1, 4)


class SchedulerMachine(RuleBasedStateMachine):
    """Requests of a small alphabet, so that prefixes are shared, on few blocks."""

    def __init__(self):
        super().__init__()
        self.args = SimulatedArgs(block_tokens=2, kv_blocks=6, max_num_seqs=3)
        self.made = Scheduler(self.args)
        self.version = self.arrived = 0

    @rule(prompt=st.lists(st.integers(0, 1), min_size=1, max_size=11), priority=st.integers(0, 2))
    def arrive(self, prompt, priority):
        self.arrived += 1
        add(self.made, f"r{self.arrived}", prompt, priority)

    @rule(admit=st.booleans(), tokens=st.lists(st.integers(0, 1), min_size=3, max_size=3))
    def step(self, admit, tokens):
        first = self.made.running[0] if self.made.running else None
        done = self.made.schedule(admit=admit)
        self.made.check()
        if admit:
            assert bool(done.running) == self.made.busy
        if first:
            assert first in done.running  # so that somebody always gets on
        for sequence, token in zip(done.running, tokens, strict=False):
            sequence.tokens.append(token)
            if len(sequence.tokens) >= self.args.context_tokens:
                self.made.remove(sequence)

    @precondition(lambda self: self.made.busy)
    @rule(data=st.data())
    def leave(self, data):
        self.made.remove(data.draw(st.sampled_from(self.made.running + self.made.waiting)))

    @rule(recompute=st.booleans())
    def update(self, recompute):
        self.version += 1
        self.made.set_version(self.version, recompute=recompute)

    @invariant()
    def limits_hold_and_the_books_add_up(self):
        self.made.check()

    def teardown(self):
        for _ in range(2000):
            if not self.made.busy:
                return
            self.step(True, [0, 1, 0])
        raise AssertionError("somebody never ends")


SchedulerMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
test_limits_hold_whatever_comes = SchedulerMachine.TestCase

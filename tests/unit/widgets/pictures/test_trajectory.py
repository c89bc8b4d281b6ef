"""A rollout opened: every sampled token with its id, log-probability and version; text as data."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.unit.widgets.pictures.scenes import NASTY, fact, part, texts
from widgets.pictures.rollouts import rollouts_picture
from widgets.pictures.tokens import MAX_TOKENS
from widgets.pictures.trajectory import trajectory_picture
from workbench.rollout.trajectory import TrajectoryBuilder
from workbench.trajectory import RolloutStatus, ToolCall
from workbench.types import FinishReason, TokenOutput, VersionSpan

WORDS = {1: "<|user|>", 2: "\n", 3: " two", 4: " plus", 5: "<b>", 6: "\u202e", 7: " four"}


def decode(ids):
    return "".join(WORDS[token_id] for token_id in ids)


def output(ids, *, log_prob=-0.5, spans=None):
    spans = spans or (VersionSpan(3, 0, len(ids)),)
    return TokenOutput(
        list(ids), [log_prob] * len(ids), FinishReason.STOP, spans, "replica-1", num_cached_tokens=9
    )


def built(builder, **known):
    values = {
        "rollout_id": "batch/task/0", "group": "task", "index": 0, "agent": "tool", "task": {},
        "status": RolloutStatus.DONE, "reward": 0.75, "wall_s": 2.5,
    }  # fmt: skip
    return builder.build(**(values | known))


def two_turns(**known):
    builder = TrajectoryBuilder()
    builder.add_turn([1, 2], output([3, 4], spans=(VersionSpan(3, 0, 1), VersionSpan(4, 1, 2))))
    builder.add_tool_call(ToolCall(0, "add", {"a": 2}, "4", well_formed=True, seconds_s=0.25))
    builder.add_turn([1, 2, 3, 4, 5], output([7], log_prob=math.log(0.9)))
    return built(builder, **known)


def tokens_of(picture, number=1):
    return part(picture, f"Tokens of segment {number} ").tokens


def test_every_token_has_its_text_mask_id_log_probability_and_version():
    tokens = tokens_of(trajectory_picture(two_turns(), decode))
    assert [(token.text, token.mask) for token in tokens] == [
        ("<|user|>", 0), ("␊", 0), (" two", 1), (" plus", 1), ("<b>", 0), (" four", 1),
    ]  # fmt: skip
    assert [token.hint for token in tokens] == [
        "id 1", "id 2", "id 3, log p -0.500, version 3", "id 4, log p -0.500, version 4", "id 5",
        "id 7, log p -0.105, version 3",
    ]  # fmt: skip


def test_the_shade_says_how_unlikely_a_sampled_token_was():
    tokens = tokens_of(trajectory_picture(two_turns(), decode))
    assert [token.shade for token in tokens] == [None, None, 0.39, 0.39, None, 0.1]


def test_how_it_ended_its_turns_and_its_calls():
    picture = trajectory_picture(two_turns(reward_parts={"answer": 0.5}), decode)
    assert fact(picture, "reward").text == "0.750"
    assert fact(picture, "reward: answer").text == "0.500"
    assert fact(picture, "policy version").text == "3 to 4"
    assert fact(picture, "sampled tokens").text == "3"
    turns = part(picture, "Turns")
    assert turns.rows[1][:7] == ("2", "1", "replica-1", "5", "9", "1", "stop")
    assert part(picture, "Tool calls").rows == (
        ("1", "add", "well-formed", '{"a": 2}', "4", "", "0.25"),
    )
    assert picture.actions == ("back",)
    assert picture.words == "done, reward 0.75; 2 turns, 3 tokens sampled, 1 tool call, 1 segment."


def test_a_failed_rollout_shows_its_error_and_no_reward():
    failed = two_turns(status=RolloutStatus.FAILED, reward=None, error="ToolError: no\nluck")
    picture = trajectory_picture(failed, decode)
    assert picture.error == "ToolError: no␊luck"
    assert fact(picture, "reward").text == "–"
    assert (fact(picture, "status").text, fact(picture, "status").tone) == ("failed", "bad")


def test_a_rollout_that_sampled_nothing():
    empty = built(TrajectoryBuilder(), status=RolloutStatus.CANCELLED, reward=None)
    picture = trajectory_picture(empty, decode)
    assert part(picture, "Turns").rows == ()
    assert fact(picture, "policy version").text == fact(picture, "finish reason").text == "–"
    picture.to_json()


def test_a_fork_is_a_segment_of_its_own_that_says_why():
    builder = TrajectoryBuilder()
    builder.add_turn([1], output([3]))
    builder.add_turn([2], output([4]), fork="the template changed")
    picture = trajectory_picture(built(builder), decode)
    assert part(picture, "Tokens of segment 2 of 2").title.endswith(": the template changed")
    assert [token.text for token in tokens_of(picture, 2)] == ["␊", " plus"]


def test_a_branch_shows_only_what_its_parent_does_not_have():
    builder = TrajectoryBuilder()
    builder.add_turn([1, 2, 3], output([4]))
    builder.add_turn([1, 2, 3, 4, 5], output([7]))
    builder.add_turn([1, 2, 7], output([3]), fork="a second try")
    builder.add_turn([5], output([3]), fork="a summary")
    picture = trajectory_picture(built(builder), decode)
    assert [token.text for token in tokens_of(picture, 2)] == [" four", " two"]
    assert "the first 2 are those of segment 1" in part(picture, "Tokens of segment 2").note
    tree = part(picture, "Segments")
    assert tree.rows == (
        ("1", "–", "6", "2", "–"),
        ("└ 2", "2", "4", "1", "a second try"),
        ("3", "–", "2", "1", "a summary"),
    )


def test_branches_of_a_branch_stand_below_it():
    builder = TrajectoryBuilder()
    builder.add_turn([1, 2, 3], output([4]))
    builder.add_turn([1, 5], output([6]), fork="a")
    builder.add_turn([1, 2, 7], output([6]), fork="b")
    builder.add_turn([1, 5, 6, 1], output([6]), fork="c")
    tree = part(trajectory_picture(built(builder), decode), "Segments")
    assert [row[0] for row in tree.rows] == ["1", "└ 2", "\u2003└ 4", "└ 3"]


def test_a_new_policy_version_is_marked_on_its_first_token():
    tokens = tokens_of(trajectory_picture(two_turns(), decode))
    assert [token.mark for token in tokens] == ["", "", "", "v4", "", "v3"]


def test_what_a_loop_adds_is_shown_beside_how_it_ended():
    more = two_turns(
        status=RolloutStatus.FAILED, reward=None, error="E: x", traceback="File\n  line", attempts=3
    )
    more = replace(more, ended_by="max_turns", notes=("cut\u202e",), extra={"seed": [1]})
    picture = trajectory_picture(more, decode)
    known = {label: fact(picture, label).text for label in ("ended by", "attempts", "seed")}
    assert known == {"ended by": "max_turns", "attempts": "3", "seed": "[1]"}
    assert part(picture, "Traceback").rows == (("File\n  line",),)
    assert part(picture, "Notes").rows == (("cut[U+202E]",),)


def test_tokens_that_make_one_character_together_are_decoded_together():
    def partly(ids):
        return bytes(ids).decode("utf-8", errors="replace")

    builder = TrajectoryBuilder()
    builder.add_turn([65], output([*"é🙂".encode(), 66, 0xFF]))
    tokens = tokens_of(trajectory_picture(built(builder), partly))
    assert [token.text for token in tokens] == ["A", "é", "·", "🙂", "·", "·", "·", "B", "\ufffd"]


def test_without_a_tokenizer_and_with_one_that_fails_there_are_ids():
    tokens = tokens_of(trajectory_picture(two_turns(), None))
    assert [token.text for token in tokens][:2] == ["1 ", "2 "]

    def broken(ids):
        raise IndexError(ids)

    tokens = tokens_of(trajectory_picture(two_turns(), broken))
    assert [token.text for token in tokens][:2] == ["<1>", "<2>"]


@pytest.mark.parametrize(
    ("prompt", "sampled", "note"),
    [
        (5000, 100, "3,100 tokens of the prompt's start"),
        (5000, 3000, "4,800 tokens of the prompt's start and 1,200 tokens at the end"),
        (10, 3000, "1,010 tokens at the end"),
    ],
)
def test_a_long_rollout_is_cut_and_says_what_is_left_out(prompt, sampled, note):
    builder = TrajectoryBuilder()
    builder.add_turn([3] * prompt, output([4] * sampled))
    picture = trajectory_picture(built(builder), decode)
    tokens = part(picture, "Tokens of")
    assert len(tokens.tokens) == MAX_TOKENS
    assert tokens.note.endswith(f"not shown: {note}")
    assert any(token.mask for token in tokens.tokens)
    assert len(picture.to_json().encode()) < 180_000


def test_all_segments_share_the_room():
    builder = TrajectoryBuilder()
    for number in range(3):
        builder.add_turn([number, *[3] * 899], output([4]), fork="" if number == 0 else "again")
    picture = trajectory_picture(built(builder), decode)
    shown = [len(p.tokens) for p in picture.parts if p.kind == "tokens"]
    assert shown == [901, 901, 198]


def test_hostile_text_is_shown_as_text():
    builder = TrajectoryBuilder()
    builder.add_turn([5, 6], output([5]))
    call = ToolCall(0, NASTY, {"x": NASTY}, NASTY, well_formed=False, error=NASTY)
    builder.add_tool_call(call)
    known = {"rollout_id": NASTY, "group": NASTY, "agent": NASTY, "reward_parts": {NASTY: 1.0}}
    trajectory = built(builder, **known)
    for picture in (trajectory_picture(trajectory, decode), rollouts_picture([trajectory])):
        text = texts(picture)
        assert "\u202e" not in text
        assert "<script>" in text
        assert len(text) < 10_000
    assert [t.text for t in tokens_of(trajectory_picture(trajectory, decode))][:2] == [
        "<b>", "[U+202E]",
    ]  # fmt: skip

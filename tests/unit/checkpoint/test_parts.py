"""A state dict is cut into parts that pickle without a copy, or refused by key."""

from __future__ import annotations

import functools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.checkpoint.parts import split
from workbench.checkpoint.values import check_values
from workbench.errors import CheckpointError

FLOATS = ["bfloat16", "float16", "float32", "float64"]


def refusal(state):
    with pytest.raises(CheckpointError) as refused:
        split(state)  # by the call itself, before any part is taken
    return str(refused.value)


@given(
    shapes=st.lists(st.lists(st.integers(0, 5), max_size=3), min_size=1, max_size=12),
    part_bytes=st.integers(1, 200),
)
def test_parts_are_numbered_bounded_and_hold_each_tensor_once(shapes, part_bytes):
    state = {str(n): np.zeros(shape, np.float32) for n, shape in enumerate(shapes)}
    parts = list(split(state, part_bytes))
    assert [(part.index, part.count) for part in parts] == [
        (n, len(parts)) for n in range(len(parts))
    ]
    assert [name for part in parts for name in part.tensors] == list(state)
    for part in parts:
        filled = [piece for piece in part.tensors.values() if piece.data.nbytes]
        assert part.size_bytes <= part_bytes or len(filled) == 1
        assert all(piece.shape == state[name].shape for name, piece in part.tensors.items())


@pytest.mark.parametrize("dtype", [*FLOATS, "int64", "bool"])
def test_torch_tensors_of_every_layout_keep_their_values(torch, dtype):
    dtype = getattr(torch, dtype)
    whole = torch.arange(24).reshape(4, 6).to(dtype)
    state = {
        "parameter": torch.nn.Parameter(whole, requires_grad=dtype.is_floating_point),
        "turned": whole.T,
        "every second": whole[:, ::2],
        "scalar": whole[1, 1],
        "empty": whole[:0],
    }
    (part,) = split(state)
    for name, piece in part.tensors.items():
        back = torch.empty(piece.shape, dtype=dtype)
        back.reshape(-1).view(torch.uint8).copy_(torch.from_numpy(piece.data))
        assert torch.equal(back, state[name])


def test_numpy_arrays_of_every_layout_keep_their_values():
    whole = np.arange(24.0).reshape(4, 6)
    state = {"turned": whole.T, "scalar": whole[1, 1, ...], "some": whole[1:3, ::2]}
    (part,) = split(state)
    for name, piece in part.tensors.items():
        assert np.array_equal(piece.data.view(np.float64).reshape(piece.shape), state[name])


def test_tensors_in_host_memory_are_neither_copied_nor_pickled_into_the_message(torch):
    tensor = torch.ones(1000, dtype=torch.bfloat16)
    (part,) = split({"a": tensor})
    assert part.tensors["a"].data.ctypes.data == tensor.data_ptr()
    buffers = []
    message = pickle.dumps(part, 5, buffer_callback=buffers.append)
    assert len(message) < 1000
    back = pickle.loads(message, buffers=buffers)
    assert back.tensors["a"].data.ctypes.data == tensor.data_ptr()


@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_tied_tensors_travel_once_and_stay_two_names(library):
    make = functools.partial(pytest.importorskip(library).ones, (100, 4))
    shared = make()
    state = {"embed": shared, **{str(n): make() for n in range(3)}, "lm_head": shared}
    first, *_ = split(state, shared.nbytes)
    assert list(first.tensors) == ["embed", "lm_head"]
    buffers = []
    pickle.dumps(first, 5, buffer_callback=buffers.append)
    assert sum(buffer.raw().nbytes for buffer in buffers) == shared.nbytes


def test_different_views_of_one_memory_are_not_taken_for_each_other(torch):
    whole = torch.arange(4.0).reshape(2, 2)
    (part,) = split({"a": whole, "b": whole.T, "c": whole[0], "d": whole.view(torch.int32)})
    values = {name: piece.data.tobytes() for name, piece in part.tensors.items()}
    assert values["b"] != values["a"] != values["c"]
    assert part.tensors["d"].dtype == "I32"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (3.0, "a float"),
        (None, "a NoneType"),
        ([1.0], "a list"),
        (np.array(["x"]), "of dtype <U1"),
        (np.ones(2, ">f4"), "of dtype >f4"),
        (np.array([None]), "of dtype object"),
    ],
)
def test_what_is_no_plain_tensor_is_refused_by_key(value, told):
    assert f"'odd' is {told}" in refusal({"fine": np.ones(2), "odd": value})


def test_torch_tensors_without_a_plain_form_are_refused_by_key(torch):
    odd = {
        "meta": torch.ones(2, device="meta"),
        "sparse": torch.ones(2).to_sparse(),
        "complex": torch.ones(2, dtype=torch.complex64),
    }
    told = refusal(odd)
    assert "'meta' is a tensor without plain memory (meta" in told
    assert "'sparse' is a tensor without plain memory (cpu, torch.sparse_coo)" in told
    assert "'complex' is of dtype complex64" in told


def test_a_name_must_be_text_and_there_must_be_one():
    assert "3 is no name" in refusal({3: np.ones(2)})
    assert "no tensors" in refusal({})


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_value_that_is_no_number_is_found_before_it_is_sent(torch, dtype):
    dtype = getattr(torch, dtype)
    fine = torch.full((1_100_000,), torch.finfo(dtype).max, dtype=dtype)
    bad = fine.clone()
    bad[-1] = float("nan")
    (good,) = split({"a": fine, "steps": torch.tensor(-1), "none": fine[:0]}, 1 << 30)
    check_values(good)
    (part,) = split({"a": fine, "b": bad}, 1 << 30)
    with pytest.raises(CheckpointError, match=r"in 1 tensor: b$"):
        check_values(part)

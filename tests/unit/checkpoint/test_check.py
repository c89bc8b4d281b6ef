"""A checkpoint that an engine could not take is refused with what is wrong with it."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from tests.unit.checkpoint.tiny import save, weights, write_index
from workbench.checkpoint.check import check_checkpoint, check_state
from workbench.checkpoint.headers import headers
from workbench.checkpoint.values import check_file_values
from workbench.errors import CheckpointError
from workbench.models import cache_dir


@pytest.fixture
def model(tmp_path):
    return save(tmp_path / "model")


@pytest.fixture
def place(tmp_path):
    return tmp_path / "new"


def refusal(directory, reference, **options):
    with pytest.raises(CheckpointError) as refused:
        check_checkpoint(directory, reference, **options)
    assert refused.value.field == "source"
    return str(refused.value)


def test_weights_of_the_same_model_are_taken_and_counted(model, place):
    good = check_checkpoint(save(place, config=None), model)
    assert (good.directory, good.num_tensors) == (place, 4)
    assert good.size_bytes == sum(tensor.nbytes for tensor in weights().values())


@pytest.mark.parametrize("width", [np.float16, np.float64])
def test_floats_of_another_width_are_taken(model, place, width):
    narrow = {k: v.astype(width) if v.dtype.kind == "f" else v for k, v in weights().items()}
    check_checkpoint(save(place, narrow), model)


def test_a_directory_that_is_not_there_or_empty_is_refused(model, place):
    assert "no directory" in refusal(place, model)
    place.mkdir()
    assert "no *.safetensors" in refusal(place, model)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"architectures": ["OtherForCausalLM"]}, "architectures"),
        ({"model_type": "other"}, "model_type is other and not tiny"),
        ({"hidden_size": 8}, "hidden_size is 8 and not 4"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings"),
        ({"text_config": {"vocab_size": 7}}, "vocab_size is 7 and not 6"),
    ],
)
def test_another_architecture_is_refused_although_every_shape_fits(model, place, changed, told):
    assert told in refusal(save(place, **changed), model)


def test_what_is_said_of_the_text_part_is_not_taken_for_the_whole_model(tmp_path):
    whole = save(tmp_path / "whole", text_config={"model_type": "tiny_text"})
    check_checkpoint(save(tmp_path / "plain"), whole)


def test_a_config_that_cannot_be_read_is_refused(model, place):
    save(place)
    (place / "config.json").write_text("[")
    assert "config.json cannot be read" in refusal(place, model)


def test_missing_tensors_are_counted_and_the_first_named(tmp_path, place):
    many = {f"layer.{n}": np.zeros(1, np.float32) for n in range(9)}
    model = save(tmp_path / "model", many)
    few = {name: many[name] for name in list(many)[5:]}
    told = refusal(save(place, few), model)
    assert told == "source: 5 of 9 tensors missing: layer.0, layer.1, layer.2 and 2 more"


def test_unknown_tensors_shapes_and_dtypes_are_named(model, place):
    extra = weights(adapter__weight=np.zeros(2, np.float32))
    assert "1 tensor that the model has not: adapter.weight" in refusal(save(place, extra), model)
    turned = weights(embed__weight=np.zeros((4, 6), np.float32))
    assert "embed.weight is 4×6 and not 6×4" in refusal(save(place, turned), model)
    whole = weights(layer__weight=np.zeros((4, 4), np.int8))
    assert "layer.weight is I8 and not F32" in refusal(save(place, whole), model)
    parts = weights(layer__steps=np.zeros(3, np.float32))
    assert "layer.steps is F32 and not I64" in refusal(save(place, parts), model)


@pytest.mark.parametrize("said", [{"tie_word_embeddings": True}, {"tie_word_embeddings": None}])
def test_a_tied_output_layer_may_be_missing_on_either_side(tmp_path, said):
    without = save(tmp_path / "without", weights(lm_head__weight=None), **said)
    check_checkpoint(save(tmp_path / "with", **said), without)
    if said["tie_word_embeddings"]:
        check_checkpoint(without, tmp_path / "with")


def test_an_output_layer_of_its_own_must_be_there(model, place):
    told = refusal(save(place, weights(lm_head__weight=None)), model)
    assert "1 of 4 tensors missing: lm_head.weight" in told


def test_buffers_that_engines_compute_may_come_and_go(tmp_path):
    name = "layer.rotary_emb.inv_freq"
    old = save(tmp_path / "old", weights() | {name: np.ones(2, np.float32)})
    new = save(tmp_path / "new")
    check_checkpoint(old, new)
    check_checkpoint(new, old)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
def test_one_value_that_is_no_number_is_found_wherever_it_is(tmp_path, kind, bad):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    big = torch.ones(1_500_001, dtype=getattr(torch, kind))  # several reads
    reference = save(tmp_path / "model", {"big": np.ones(len(big), np.float32)})
    for place in (0, 700_000, len(big) - 1):
        spoilt = big.clone()
        spoilt[place] = bad
        target = tmp_path / f"new-{place}"
        target.mkdir()
        save_file({"big": spoilt}, target / "model.safetensors")
        assert "NaN or infinite values in 1 tensor: big" in refusal(target, reference)
        check_checkpoint(target, reference, values=False)


def test_the_largest_and_smallest_numbers_are_numbers(tmp_path):
    edges = []
    for kind in (np.float16, np.float32, np.float64):
        about = np.finfo(kind)
        edges.append(np.array([about.max, about.min, about.smallest_subnormal, -0.0], kind))
    directory = save(tmp_path / "new", {str(n): edge for n, edge in enumerate(edges)})
    check_checkpoint(directory, directory)


def test_only_files_that_the_index_names_are_looked_at(model, place):
    tensors = weights()
    names = list(tensors)
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    save(place, {name: tensors[name] for name in names[:2]}, file=first)
    save(place, {name: tensors[name] for name in names[2:]}, file=second)
    (place / "old.safetensors").write_bytes(b"no index: an engine would read it")
    assert "old.safetensors is broken" in refusal(place, model)
    write_index(place, dict(zip(names, [first, first, second, second], strict=True)))
    assert check_checkpoint(place, model).num_tensors == 4
    (place / second).unlink()
    assert f"names files that are not there: {second}" in refusal(place, model)


@pytest.mark.parametrize("folder", [".", "original"])
def test_a_second_layout_that_vllm_would_load_instead_is_refused(model, place, folder):
    save(save(place) / folder, file="consolidated.safetensors", config=None)
    assert "vLLM would load" in refusal(place, model)
    assert {info.file.name for info in headers(place).values()} == {"model.safetensors"}
    check_checkpoint(model, place)  # the replicas' own directory may have one


def test_files_that_a_system_hides_are_not_looked_at(model, place):
    (save(place) / "._model.safetensors").write_bytes(b"not weights")
    check_checkpoint(place, model)


@pytest.mark.parametrize("text", ["[]", "{", '{"weight_map": 3}', '{"weight_map": {}}'])
def test_an_index_that_makes_no_sense_is_refused(model, place, text):
    save(place)
    (place / "model.safetensors.index.json").write_text(text)
    assert "model.safetensors.index.json" in refusal(place, model)


def test_an_index_cannot_lead_out_of_the_directory(model, place):
    place.mkdir()
    write_index(place, dict.fromkeys(weights(), "../model/model.safetensors"))
    assert "not there" in refusal(place, model)


def test_a_tensor_in_two_files_is_refused(model, place):
    save(place)
    save(place, {"embed.weight": np.zeros((6, 4), np.float32)}, file="more.safetensors")
    assert re.search(r"embed.weight is in model.* and again in more", refusal(place, model))


def test_a_file_that_was_cut_off_anywhere_is_refused(model, place):
    path = save(place) / "model.safetensors"
    whole = path.read_bytes()
    for size in {0, 7, 8, 20, len(whole) - 1}:
        path.write_bytes(whole[:size])
        assert "model.safetensors is broken or cut off" in refusal(place, model, values=False)
    path.write_bytes(whole + b"\0")
    assert "header says" in refusal(place, model, values=False)


def test_a_file_that_changes_while_it_is_read_is_refused(place):
    path = save(place) / "model.safetensors"
    found = headers(place)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="changed while it was read"):
        check_file_values(found)
    path.unlink()
    with pytest.raises(CheckpointError, match="cannot be read"):
        check_file_values(found)


def describe(**entries):
    header = json.dumps(entries).encode()
    return len(header).to_bytes(8, "little") + header + bytes(8)


@pytest.mark.parametrize(
    "content",
    [
        describe(a={"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}),
        describe(
            a={"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
            b={"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
        ),
        describe(a={"dtype": "F32", "shape": [-1, -2], "data_offsets": [0, 8]}),
        describe(a={"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}),
        describe(a={"dtype": "X1", "shape": [8], "data_offsets": [0, 8]}),
        describe(a=[1, 2]),
        describe(a={"dtype": "F32"}),
    ],
    ids=["gap", "overlap", "negative", "size", "dtype", "list", "lacks"],
)
def test_a_header_that_contradicts_itself_is_refused(model, place, content):
    place.mkdir()
    (place / "model.safetensors").write_bytes(content)
    assert "broken" in refusal(place, model)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 400), byte=st.integers(0, 255), cut=st.integers(0, 3))
def test_what_passes_with_damage_is_still_a_file_that_loads(tmp_path, at, byte, cut):
    path = save(tmp_path / "new") / "model.safetensors"
    damaged = bytearray(path.read_bytes())
    damaged[at] = byte
    path.write_bytes(damaged[: len(damaged) - cut])
    try:
        found = headers(tmp_path / "new")
    except CheckpointError:
        return
    with safe_open(path, "numpy") as loaded:
        assert set(loaded.keys()) == set(found)
        assert {n: tuple(loaded.get_slice(n).get_shape()) for n in found} == {
            name: info.shape for name, info in found.items()
        }


def test_a_state_dict_is_held_against_the_model_before_it_is_sent(model):
    check_state(weights(), model)
    with pytest.raises(CheckpointError, match="1 of 4 tensors missing: embed"):
        check_state(weights(embed__weight=None), model)
    with pytest.raises(CheckpointError, match=r"layer\.weight is 5 and not 4×4"):
        check_state(weights(layer__weight=np.ones(5)), model)
    with pytest.raises(CheckpointError, match=r"'embed\.weight' is a list"):
        check_state(weights(embed__weight=[1.0]), model)


@pytest.mark.skipif(
    not (cache_dir() / "models" / "smollm2-135m" / "config.json").exists(),
    reason="the packaged model was not prepared here",
)
def test_the_packaged_model_is_a_good_checkpoint_of_itself():
    directory = cache_dir() / "models" / "smollm2-135m"
    good = check_checkpoint(directory, directory)
    assert good.num_tensors == 272
    assert 200e6 < good.size_bytes < 300e6

"""Files that must be refused: hostile, damaged, contradictory; one line each, and nothing executed."""

import io
import os
import pickle
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from imir_lens.checkpoints import (
    Checkpoint,
    checkpoint_series,
    load_checkpoint,
    load_transformer,
)
from imir_lens.errors import CheckpointError, UnsupportedModelError
from imir_lens.models.transformer import ImirTransformer

DATA = Path(__file__).parent / "data"
RECALL = DATA / "recall_2l.pt"


@pytest.fixture(scope="module")
def recall() -> Checkpoint:
    return load_checkpoint(RECALL)


class _Payload:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("form", ["torch", "torch in cfg", "old torch", "pickle 0", "pickle 2", "pickle 4"])
def test_a_hostile_pickle_is_not_executed(tmp_path: Path, form: str, recall: Checkpoint) -> None:
    mark, file = tmp_path / "executed", tmp_path / "model.pt"
    payload = {"state_dict": recall.state_dict, "cfg": {"d_model": _Payload(mark)}}
    if form == "torch":
        torch.save(_Payload(mark), file)
    elif form == "torch in cfg":
        torch.save(payload, file)
    elif form == "old torch":
        torch.save(payload, file, _use_new_zipfile_serialization=False)
    else:
        file.write_bytes(pickle.dumps(_Payload(mark), protocol=int(form[-1])))
    with pytest.raises(CheckpointError) as error:
        load_checkpoint(file)
    assert not mark.exists()
    assert str(file) in str(error.value)
    if form in ("torch", "torch in cfg", "old torch", "pickle 2"):
        assert "system, which is never loaded (nothing in the file was executed)" in str(error.value)
    # The control: the payload is live, plain unpickling runs it.
    pickle.loads(pickle.dumps(_Payload(mark)))
    assert mark.exists()


def test_what_a_process_allows_elsewhere_does_not_apply(tmp_path: Path) -> None:
    torch.save({"state_dict": {"a": torch.ones(2)}, "cfg": Path("x")}, tmp_path / "a.pt")
    allowed = [Path, type(Path("x"))]
    with torch.serialization.safe_globals(allowed):
        before = set(torch.serialization.get_safe_globals())
        with pytest.raises(CheckpointError, match=r"pathlib\.\w*Path, which is never loaded"):
            load_checkpoint(tmp_path / "a.pt")
        assert set(torch.serialization.get_safe_globals()) == before


@pytest.mark.parametrize("name", ["v218_cfgobj.pt", "v39_cfgobj.pt", "v218_whole.pt", "v39_whole.pt"])
def test_pickled_transformer_lens_objects_are_named_and_refused(name: str) -> None:
    with pytest.raises(CheckpointError) as error:
        load_checkpoint(DATA / "variants" / name)
    message = str(error.value)
    assert "\n" not in message
    assert name in message
    assert "holds a pickled object of class transformer_lens." in message
    assert ("HookedTransformerConfig" if "cfgobj" in name else "transformer_lens.HookedTransformer.") in message
    assert "TransformerLens <4" in message
    assert "'cfg': model.cfg.to_dict()" in message


def _zip(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


_PICKLED_NONE = b"\x80\x02N."
_SCRIPT = _zip(**{"a/data.pkl": _PICKLED_NONE, "a/constants.pkl": _PICKLED_NONE, "a/version": b"3\n"})
_BYTES = RECALL.read_bytes()
_TENSORS = (DATA / "recall_ln_mlp/model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("suffix", "data", "fault"),
    [
        (".pt", b"", "the file is empty"),
        (".safetensors", b"", "the file is empty"),
        (".pt", b"epoch 1 loss 0.5\n", "not a checkpoint: expected a file written by torch.save or safetensors"),
        (".pt", bytes(range(100, 200)), "not a checkpoint"),
        (".pt", b"\x80" + bytes(range(256)), "not a checkpoint, or damaged"),
        (".pt", _BYTES[: len(_BYTES) // 2], "damaged or truncated"),
        (".pt", _BYTES[:1000], "damaged or truncated"),
        (".pt", _BYTES[:-1], "damaged or truncated"),
        (".pt", _zip(**{"word/document.xml": b"<x/>"}), "a zip archive, but not one written by torch.save"),
        (".pt", _SCRIPT, "a TorchScript archive, which is code"),
        (".safetensors", b"hello", "not a safetensors file, or damaged or truncated"),
        (".safetensors", b"\x08\0\0\0\0\0\0\0{garbage", "not a safetensors file"),
        (".safetensors", b"\xff\xff\xff\xff\xff\xff\xff\x7f{}", "not a safetensors file"),
        (".safetensors", (200 << 20).to_bytes(8, "little") + b"{}", "not a safetensors file"),
        (".safetensors", _TENSORS[:5000], "not a safetensors file, or damaged or truncated"),
        (".safetensors", _TENSORS[:-1], "not a safetensors file, or damaged or truncated"),
        (".safetensors", b'\x02\0\0\0\0\0\0\0{}', "not a checkpoint: expected a state dict"),
    ],
)  # fmt: skip
def test_damaged_files_are_one_line_with_name_and_fault(tmp_path: Path, suffix: str, data: bytes, fault: str) -> None:
    file = tmp_path / f"mine{suffix}"
    file.write_bytes(data)
    with pytest.raises(CheckpointError) as error:
        load_checkpoint(file)
    assert str(error.value).startswith(f"{file}: {fault}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("seed", range(40))
def test_flipped_bytes_never_escape_as_another_error(tmp_path: Path, seed: int) -> None:
    generator = np.random.default_rng(seed)
    source = zipfile.ZipFile(DATA / "variants/v39_dheadodd.pt")
    files = {name: bytearray(source.read(name)) for name in source.namelist()}
    damaged = next(data for name, data in files.items() if name.endswith("data.pkl"))
    for place in generator.integers(len(damaged), size=3):
        damaged[place] = generator.integers(256)
    (tmp_path / "a.pt").write_bytes(_zip(**{name: bytes(data) for name, data in files.items()}))
    try:
        load_transformer(tmp_path / "a.pt")
    except (CheckpointError, UnsupportedModelError) as error:
        assert str(tmp_path / "a.pt") in str(error)


@pytest.mark.parametrize(
    ("payload", "fault"),
    [
        (torch.ones(3), "expected a state dict or {'state_dict': …, 'cfg': …}, found a Tensor"),
        ([{"a": torch.ones(1)}] * 3, "found a list of 3 items"),
        ({}, "found an empty dict"),
        ({"epoch": 3, "loss": 0.5}, "found 2 entries ('epoch', 'loss')"),
        ({"state_dict": {"a": torch.ones(1)}, "cfg": "n_layers=2"}, "'cfg' holds a str: expected a dict"),
        ({"wte.weight": torch.ones(2, 2)}, "not a HookedTransformer state dict: expected 'embed.W_E'"),
        ({"transformer.wte.weight": torch.ones(2, 2)}, "the weights of a Hugging Face model ('transformer.wte.weight'"),
        ({"state_dict": {"a": torch.ones(1).int()}}, "'a' is a tensor of int32: expected dense floating-point"),
        ({"state_dict": {"a": torch.ones(2).to_sparse()}}, "'a' is a tensor of float32: expected dense"),
        ({"state_dict": {"a": 0.5}}, "'a' holds a float: expected named tensors only"),
        ({"state_dict": {1: torch.ones(1)}}, "1 holds a Tensor: expected named tensors only"),
    ],
)
def test_files_without_usable_weights_say_what_they_hold(tmp_path: Path, payload: object, fault: str) -> None:
    torch.save(payload, tmp_path / "a.pt")
    with pytest.raises(CheckpointError) as error:
        load_checkpoint(tmp_path / "a.pt")
    assert str(error.value).startswith(f"{tmp_path / 'a.pt'}: ")
    assert fault in str(error.value)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_named(tmp_path: Path, recall: Checkpoint, bad: float) -> None:
    broken = recall.state_dict["blocks.1.attn.W_K"].clone()
    broken[0, 3, :5] = bad
    torch.save({"state_dict": {**recall.state_dict, "blocks.1.attn.W_K": broken}, "cfg": recall.config}, tmp_path / "a")
    with pytest.raises(CheckpointError, match=r"a: 'blocks.1.attn.W_K' has 5 values that are NaN or infinite"):
        load_checkpoint(tmp_path / "a")


def test_shapes_that_contradict_the_config_name_the_file(tmp_path: Path, recall: Checkpoint) -> None:
    file = tmp_path / "a.pt"
    for change in ({"d_model": 64}, {"n_layers": 3}, {"d_vocab": 65}, {"n_heads": 2, "d_head": 32}, {"n_ctx": 12}):
        torch.save({"state_dict": recall.state_dict, "cfg": {**recall.config, **change}}, file)
        with pytest.raises(CheckpointError) as error:
            load_transformer(file)
        assert str(error.value).startswith(f"{file}: ")
        assert "cfg" in str(error.value)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"n_layers": 10**7}, "cfg gives n_layers=10,000,000"),
        ({"n_layers": 99999999999999999999}, "cfg gives n_layers=99999999999999999999"),
        ({"n_ctx": 10**12}, "more than 10^24 numbers"),
        ({"d_vocab": 10**11}, "numbers (weights and masks): expected at most"),
        ({"n_heads": 10**11}, "numbers (weights and masks): expected at most"),
        ({"d_model": 10**7}, "6,640,000,576 numbers (weights and masks): expected at most 2,000,000,000"),
        ({"n_heads": 20_000}, "blocks.0.attn.W_Q has shape [1, 128, 64], but its cfg asks for [20000, 128, 64]"),
    ],
    ids=str,
)
def test_a_config_that_lies_about_sizes_is_refused_before_memory_is_taken(
    tmp_path: Path, recall: Checkpoint, monkeypatch: pytest.MonkeyPatch, change: dict[str, int], fault: str
) -> None:
    file = tmp_path / "a.pt"
    torch.save({"state_dict": recall.state_dict, "cfg": {**recall.config, **change}}, file)
    drawn: list[object] = []  # weights are drawn once they have been allocated
    monkeypatch.setattr(ImirTransformer, "_draw_weights", lambda *arguments: drawn.append(arguments))
    for path, overrides in ((file, {}), (RECALL, change), (RECALL, {key: str(n) for key, n in change.items()})):
        with pytest.raises(CheckpointError) as error:
            load_transformer(path, overrides=overrides)
        assert str(error.value).startswith(f"{path}: ")
        assert fault in str(error.value)
    assert drawn == []
    load_transformer(RECALL)
    assert len(drawn) == 1


@pytest.mark.parametrize("name", ["embed.W_E", "blocks.0.attn.mask", "blocks.1.attn.W_Q"])
def test_tensors_that_claim_more_than_the_file_holds_are_refused(tmp_path: Path, recall: Checkpoint, name: str) -> None:
    huge = torch.ones(1).expand(10**6, 10**6)
    torch.save({"state_dict": {**recall.state_dict, name: huge}, "cfg": recall.config}, tmp_path / "a.pt")
    assert (tmp_path / "a.pt").stat().st_size < 10**6
    with pytest.raises(CheckpointError) as error:
        load_checkpoint(tmp_path / "a.pt")
    assert f"'{name}' has shape [1000000, 1000000], but the file holds only 1 numbers for it" in str(error.value)
    # The control: a view of a larger storage, and a transposed one, hold all their numbers.
    views = {"embed.W_E": torch.ones(80, 128)[:64], "blocks.1.attn.W_Q": torch.ones(1, 64, 128).mT}
    torch.save({"state_dict": {**recall.state_dict, **views}, "cfg": recall.config}, tmp_path / "a.pt")
    assert load_transformer(tmp_path / "a.pt").W_E.sum() == 64 * 128


def test_configs_that_cannot_be_used_name_the_file(tmp_path: Path, recall: Checkpoint) -> None:
    file = tmp_path / "a.pt"
    for config, kind in [({"n_layers": 2}, CheckpointError), ({**recall.config, "warp": 9}, UnsupportedModelError)]:
        torch.save({"state_dict": recall.state_dict, "cfg": config}, file)
        with pytest.raises(kind) as error:
            load_transformer(file)
        assert str(error.value).startswith(f"{file}: ")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{n_layers: 2}", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[1, 2]", "expected a JSON object with the model's config, found list"),
        ("", "the file is empty"),
    ],
)
def test_a_broken_config_file_is_named(tmp_path: Path, text: str, fault: str) -> None:
    shutil.copy(DATA / "recall_ln_mlp/model.safetensors", tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(text)
    for path in (tmp_path, tmp_path / "model.safetensors"):
        with pytest.raises(CheckpointError) as error:
            load_checkpoint(path)
        assert str(error.value).startswith(f"{tmp_path / 'config.json'}: {fault}")
        assert "\n" not in str(error.value)


def test_safetensors_without_a_config_ask_for_one(tmp_path: Path) -> None:
    shutil.copy(DATA / "recall_ln_mlp/model.safetensors", tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="pass --config FILE"):
        load_checkpoint(tmp_path / "model.safetensors")
    found = load_checkpoint(tmp_path / "model.safetensors", config=DATA / "recall_ln_mlp/config.json")
    assert found.config["act_fn"] == "gelu"


def test_hugging_face_models_of_other_kinds_are_refused(tmp_path: Path) -> None:
    safetensors.torch.save_file({"bert.embeddings.weight": torch.ones(2, 2)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"architectures": ["BertForMaskedLM"], "model_type": "bert"}')
    for path in (tmp_path, tmp_path / "model.safetensors"):
        with pytest.raises(UnsupportedModelError, match=r"Hugging Face model .*BertForMaskedLM.* not supported yet"):
            load_checkpoint(path)


def test_places_without_a_checkpoint_say_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nowhere.pt: no such file or directory"):
        load_checkpoint(tmp_path / "nowhere.pt")
    with pytest.raises(CheckpointError, match="path is empty: expected a file or a directory"):
        load_checkpoint("")
    with pytest.raises(CheckpointError, match="a directory without a checkpoint: expected checkpoints/step_"):
        load_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="no numbered checkpoints"):
        checkpoint_series(tmp_path)
    with pytest.raises(CheckpointError, match="expected a run directory, found nothing"):
        checkpoint_series(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="expected a run directory, found a file"):
        checkpoint_series(RECALL)
    for name in ("a.pt", "b.pt"):
        shutil.copy(RECALL, tmp_path / name)
    with pytest.raises(CheckpointError, match=r"holds 2 checkpoints \(a.pt, b.pt\): name one of them"):
        load_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match=r"missing.json: no such file"):
        load_checkpoint(RECALL, config=tmp_path / "missing.json")

"""Loading: every form round-trips, every damaged or hostile file is one clear line, nothing in a file runs."""

import hashlib
import io
import json
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
    save_checkpoint,
)
from imir_lens.errors import CheckpointError, OptionError, UnsupportedModelError
from imir_lens.models.config import TransformerConfig

DATA = Path(__file__).parent / "data"
RECALL = DATA / "recall_2l.pt"


@pytest.fixture(scope="module")
def recall() -> Checkpoint:
    return load_checkpoint(RECALL)


@pytest.fixture(scope="module")
def contexts() -> torch.Tensor:
    return torch.from_numpy(np.load(DATA / "recall_contexts.npz")["tokens"][:64]).long()


def _weights(recall: Checkpoint) -> dict[str, torch.Tensor]:
    return {k: v for k, v in recall.state_dict.items() if not k.endswith(("mask", "IGNORE"))}


def _assert_same_weights(found: Checkpoint, recall: Checkpoint) -> None:
    for key, value in _weights(recall).items():
        assert torch.equal(found.state_dict[key], value), key
    assert TransformerConfig.from_dict(found.config) == TransformerConfig.from_dict(recall.config)


# --- what loads ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["recall_2l.pt", "recall_rotary_ln.pt", "recall_ln_mlp"])
def test_real_checkpoints_reproduce_transformer_lens_logits(name: str, contexts: torch.Tensor) -> None:
    model = load_transformer(DATA / name)
    golden = torch.from_numpy(np.load(DATA / f"{name.removesuffix('.pt')}_logits.npz")["logits"])
    with torch.no_grad():
        found = model(contexts)[:, -1]
    assert not model.training
    assert golden.abs().max() > 5
    assert (found - golden).abs().max() < 1e-5 * golden.abs().max()
    assert not torch.allclose(found, golden.roll(1, 0), atol=1)


def test_a_checkpoint_says_where_it_came_from(recall: Checkpoint) -> None:
    assert recall.source == str(RECALL)
    assert recall.sha256 == hashlib.sha256(RECALL.read_bytes()).hexdigest()
    assert recall.step is None
    assert recall.config["attn_scale"] == 8.0
    json.dumps(recall.config)  # numpy scalars and dtypes have become JSON values


@pytest.mark.parametrize("keys", [("state_dict", "cfg"), ("model", "config"), ("model_state_dict", "cfg")])
def test_dicts_of_weights_and_config_load(tmp_path: Path, recall: Checkpoint, keys: tuple[str, str]) -> None:
    torch.save({keys[0]: recall.state_dict, keys[1]: recall.config, "step": 7}, tmp_path / "a.pt")
    found = load_checkpoint(tmp_path / "a.pt")
    _assert_same_weights(found, recall)
    assert found.step == 7


def test_the_old_torch_format_loads(tmp_path: Path, recall: Checkpoint) -> None:
    payload = {"state_dict": recall.state_dict, "cfg": recall.config}
    torch.save(payload, tmp_path / "a.pth", _use_new_zipfile_serialization=False)
    _assert_same_weights(load_checkpoint(tmp_path / "a.pth"), recall)


def test_a_bare_state_dict_takes_its_config_from_a_file_or_from_beside(tmp_path: Path, recall: Checkpoint) -> None:
    torch.save(recall.state_dict, tmp_path / "bare.pt")
    (tmp_path / "other.json").write_text(json.dumps(recall.config))
    _assert_same_weights(load_checkpoint(tmp_path / "bare.pt", config=tmp_path / "other.json"), recall)
    (tmp_path / "other.json").rename(tmp_path / "config.json")
    _assert_same_weights(load_checkpoint(tmp_path / "bare.pt"), recall)


def test_a_bare_state_dict_tells_its_sizes_and_asks_for_the_rest(tmp_path: Path, recall: Checkpoint) -> None:
    torch.save(recall.state_dict, tmp_path / "bare.pt")
    with pytest.raises(CheckpointError) as error:
        load_checkpoint(tmp_path / "bare.pt")
    message = str(error.value)
    assert "state dict without cfg" in message
    assert "n_layers=2 n_heads=1 d_model=128 d_head=64 d_vocab=64" in message
    assert "pass --config FILE" in message
    line = message.partition("--model ")[2]
    assert line == "use_attn_scale=True normalization_type=None"
    # The line that the message gives, as the command line would pass it on, is enough.
    overrides = dict(word.split("=") for word in line.split())
    _assert_same_weights(load_checkpoint(tmp_path / "bare.pt", overrides=overrides), recall)


def test_shapes_tell_a_norm_an_mlp_and_rotary_positions(tmp_path: Path) -> None:
    for name, told, asked in [
        ("recall_rotary_ln.pt", {"normalization_type": "LN", "rotary_dim": 64}, "rotary_adjacent_pairs=False"),
        ("recall_ln_mlp", {"d_mlp": 128, "n_heads": 2}, "act_fn=gelu"),
    ]:
        full = load_checkpoint(DATA / name)
        torch.save(full.state_dict, tmp_path / "bare.pt")
        with pytest.raises(CheckpointError, match=asked):
            load_checkpoint(tmp_path / "bare.pt")
        given = {"use_attn_scale": True, "act_fn": full.config["act_fn"], "rotary_adjacent_pairs": False}
        found = load_checkpoint(tmp_path / "bare.pt", overrides=given)
        assert told.items() <= found.config.items()
        for field in ("n_layers", "n_ctx", "d_vocab_out", "normalization_type", "positional_embedding_type"):
            assert found.config[field] == full.config[field], field


def test_overrides_replace_single_fields(recall: Checkpoint) -> None:
    changed = load_checkpoint(RECALL, overrides={"attn_scale": "4", "model_name": "mine", "seed": "None"})
    assert changed.config == {**recall.config, "attn_scale": 4, "model_name": "mine", "seed": None}


def test_saved_checkpoints_load_as_they_were(tmp_path: Path, recall: Checkpoint) -> None:
    model = load_transformer(RECALL)
    for name in ("a.pt", "a.pth", "deep/folder/model.safetensors"):
        save_checkpoint(tmp_path / name, model.state_dict(), model.cfg)
        _assert_same_weights(load_checkpoint(tmp_path / name), recall)
    assert sorted(p.name for p in tmp_path.rglob("*")) == [
        "a.pt", "a.pth", "config.json", "deep", "folder", "model.safetensors",
    ]  # fmt: skip
    _assert_same_weights(load_checkpoint(tmp_path / "deep/folder"), recall)
    assert torch.load(tmp_path / "a.pt", weights_only=True)["cfg"]["n_layers"] == 2


def test_extra_values_come_back(tmp_path: Path, recall: Checkpoint) -> None:
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(3))])
    extra = {"step": 12, "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}
    save_checkpoint(tmp_path / "last.pt", recall.state_dict, recall.config, extra=extra)
    found = load_checkpoint(tmp_path / "last.pt")
    assert found.step == 12
    assert found.extra["optimizer"]["param_groups"][0]["lr"] == 1e-3
    assert torch.equal(found.extra["rng"], extra["rng"])


def test_a_run_directory_is_its_last_step(tmp_path: Path, recall: Checkpoint) -> None:
    for step in (1000, 20, 300):
        changed = {**recall.state_dict, "unembed.b_U": torch.full((64,), float(step))}
        save_checkpoint(tmp_path / f"checkpoints/step_{step:08d}.pt", changed, recall.config, extra={"step": step})
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "checkpoints/.step_99999999.pt.x.tmp").write_bytes(b"half")
    found = load_checkpoint(tmp_path)
    assert (found.step, float(found.state_dict["unembed.b_U"][0])) == (1000, 1000.0)
    assert found.source == str(tmp_path)
    assert [(step, path.name) for step, path in checkpoint_series(tmp_path)] == [
        (20, "step_00000020.pt"),
        (300, "step_00000300.pt"),
        (1000, "step_00001000.pt"),
    ]
    assert checkpoint_series(tmp_path / "checkpoints") == checkpoint_series(tmp_path)


def test_a_series_of_safetensors_sorts_by_number(tmp_path: Path, recall: Checkpoint) -> None:
    for step in (9, 10, 100):
        save_checkpoint(tmp_path / f"step_{step}.safetensors", recall.state_dict, recall.config)
    assert [step for step, _ in checkpoint_series(tmp_path)] == [9, 10, 100]
    assert load_checkpoint(tmp_path).step == 100


def test_a_folder_with_config_and_pth_loads(tmp_path: Path, recall: Checkpoint) -> None:
    torch.save(recall.state_dict, tmp_path / "model_final.pth")
    (tmp_path / "config.json").write_text(json.dumps(recall.config))
    _assert_same_weights(load_checkpoint(tmp_path), recall)


def test_native_bridge_files_load_as_the_same_weights(tmp_path: Path, recall: Checkpoint) -> None:
    state = {"unembed.bias": recall.state_dict["unembed.b_U"], "unembed.weight": recall.state_dict["unembed.W_U"].T}
    state |= {"embed.weight": recall.state_dict["embed.W_E"], "pos_embed.weight": recall.state_dict["pos_embed.W_pos"]}
    for layer in range(2):
        for name in "QKV":
            prefix, old = f"blocks.{layer}.attn.{name.lower()}", f"blocks.{layer}.attn."
            state[f"{prefix}.weight"] = recall.state_dict[f"{old}W_{name}"].permute(0, 2, 1).reshape(64, 128)
            state[f"{prefix}.bias"] = recall.state_dict[f"{old}b_{name}"].reshape(64)
        state[f"blocks.{layer}.attn.o.weight"] = recall.state_dict[f"blocks.{layer}.attn.W_O"].reshape(64, 128).T
        state[f"blocks.{layer}.attn.o.bias"] = recall.state_dict[f"blocks.{layer}.attn.b_O"]
    config = {**recall.config, "architecture": "TransformerLensNative", "attn_scale": -1.0, "is_stateful": False}
    torch.save({"state_dict": state, "cfg": config}, tmp_path / "bridge.pt")
    found = load_checkpoint(tmp_path / "bridge.pt")
    for key, value in _weights(recall).items():
        assert torch.equal(found.state_dict[key], value), key
    tokens = torch.arange(48).view(2, 24)
    with torch.no_grad():
        assert torch.equal(load_transformer(tmp_path / "bridge.pt")(tokens), load_transformer(RECALL)(tokens))
    torch.save(state, tmp_path / "bare.pt")
    with pytest.raises(CheckpointError, match=r"bare.pt: a TransformerBridge state dict without its config"):
        load_checkpoint(tmp_path / "bare.pt")
    with pytest.raises(UnsupportedModelError, match="use_local_attn=True"):
        load_transformer(tmp_path / "bridge.pt", overrides={"use_local_attn": True})
    with pytest.raises(UnsupportedModelError, match=r"bridge.pt: a TransformerBridge over 'GPT2LMHeadModel'"):
        load_checkpoint(tmp_path / "bridge.pt", overrides={"architecture": "GPT2LMHeadModel"})


# --- what does not load -------------------------------------------------------------------------------------------


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
        ({"transformer.wte.weight": torch.ones(2, 2)}, "not a HookedTransformer state dict: expected 'embed.W_E'"),
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


def test_hugging_face_models_are_refused_for_now(tmp_path: Path) -> None:
    safetensors.torch.save_file({"transformer.wte.weight": torch.ones(2, 2)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}')
    for path in (tmp_path, tmp_path / "model.safetensors"):
        with pytest.raises(UnsupportedModelError, match=r"Hugging Face model .*GPT2LMHeadModel.* not supported yet"):
            load_checkpoint(path)


def test_places_without_a_checkpoint_say_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nowhere.pt: no such file or directory"):
        load_checkpoint(tmp_path / "nowhere.pt")
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


# --- saving ---------------------------------------------------------------------------------------------------------


def test_a_failed_save_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, recall: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "last.pt"
    save_checkpoint(file, recall.state_dict, recall.config, extra={"step": 1})
    before = file.read_bytes()

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OptionError, match=r"last.pt: cannot be written: No space left on device"):
        save_checkpoint(file, recall.state_dict, recall.config, extra={"step": 2})
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_what_could_not_be_loaded_again_is_not_written(tmp_path: Path, recall: Checkpoint) -> None:
    for name, extra, fault in [
        ("a.pt", {"where": Path("x")}, "not written, it could not be loaded again"),
        ("a.pt", {"cfg": {}}, "extra may not use the names cfg"),
        ("a.safetensors", {"step": 1}, "keeps weights only, not step"),
        ("a.bin", {}, "expected a name ending in .pt, .pth or .safetensors, found '.bin'"),
    ]:
        with pytest.raises(OptionError, match=fault):
            save_checkpoint(tmp_path / name, recall.state_dict, recall.config, extra=extra)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match="cannot be written"):
        save_checkpoint(tmp_path / "file/a.pt", recall.state_dict, recall.config)


def test_transposed_and_tied_weights_are_saved(tmp_path: Path, recall: Checkpoint) -> None:
    tied = {**recall.state_dict, "unembed.W_U": recall.state_dict["embed.W_E"].T}
    save_checkpoint(tmp_path / "model.safetensors", tied, recall.config)
    found = load_checkpoint(tmp_path).state_dict
    assert torch.equal(found["unembed.W_U"], found["embed.W_E"].T)
    assert found["unembed.W_U"].abs().sum() > 0

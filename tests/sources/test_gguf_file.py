import builtins
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf_writer import gguf, write_llama
from tiny_models import logits_of, tiny_model, tokens

from imir_lens.checkpoints import load_checkpoint, load_transformer
from imir_lens.errors import CheckpointError, ImirError, OptionError, UnsupportedModelError
from imir_lens.sources import gguf_tokens
from imir_lens.sources.gguf_file import half_split, read_gguf
from imir_lens.sources.hugging_face import convert


@torch.no_grad()
@pytest.mark.parametrize("kind", ["llama", "llama tied", "llama ungrouped"])
def test_a_llama_written_as_llama_cpp_does_computes_the_same(tmp_path: Path, kind: str) -> None:
    model = tiny_model(kind)
    file = write_llama(model, tmp_path / "model.gguf")
    theirs = logits_of(model)
    for path in (file, tmp_path):
        assert (load_transformer(path)(tokens()) - theirs).abs().max() < 1e-4 < theirs.std()


@torch.no_grad()
def test_without_the_reordering_of_rotated_pairs_logits_are_far_off(tmp_path: Path) -> None:
    model = tiny_model("llama")
    state, config = read_gguf(write_llama(model, tmp_path / "model.gguf"))
    name = "model.layers.0.self_attn.q_proj.weight"
    assert torch.equal(state[name], model.state_dict()[name])
    state[name] = half_split(state[name], 4)  # once too often
    assert not torch.equal(state[name], model.state_dict()[name])
    weights, settings = convert(state, config)
    from test_hugging_face import _run

    assert (_run(weights, settings) - logits_of(model)).abs().max() > 0.1


@torch.no_grad()
def test_half_precision_files_are_read_in_float32(tmp_path: Path) -> None:
    model = tiny_model("llama")
    ours = load_transformer(write_llama(model, tmp_path / "model.gguf", dtype=np.float16))
    assert ours.embed.W_E.dtype == torch.float32
    assert torch.equal(ours.embed.W_E, model.state_dict()["model.embed_tokens.weight"].half().float())


def test_the_vocabulary_is_read_in_order_of_ids(tmp_path: Path) -> None:
    file = write_llama(tiny_model("llama"), tmp_path / "model.gguf")
    assert gguf_tokens(file) == [f"word{i}" for i in range(40)]
    writer = gguf.GGUFWriter(tmp_path / "bare.gguf", "llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(CheckpointError, match=r"bare.gguf: no vocabulary"):
        gguf_tokens(tmp_path / "bare.gguf")


def test_quantised_files_need_the_package_and_plain_ones_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = write_llama(tiny_model("llama"), tmp_path / "plain.gguf")
    writer = gguf.GGUFWriter(tmp_path / "quantised.gguf", "llama")
    for name, value in (("embedding_length", 32), ("attention.head_count", 2)):
        writer.add_uint32(f"llama.{name}", value)
    values = np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(64, 32)
    kind = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor("token_embd.weight", gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    state, _ = read_gguf(tmp_path / "quantised.gguf")
    assert 0 < np.abs(state["model.embed_tokens.weight"].numpy() - values).max() < 0.01

    real_import = builtins.__import__

    def without_gguf(name: str, *args: Any) -> Any:
        if name.partition(".")[0] == "gguf":
            raise ImportError(name)
        return real_import(name, *args)

    monkeypatch.setattr(builtins, "__import__", without_gguf)
    assert len(load_checkpoint(plain).state_dict) > 10
    with pytest.raises(OptionError, match=r"quantised.gguf: .*needs the package gguf: pip install 'imir-lens\[gguf\]'"):
        load_checkpoint(tmp_path / "quantised.gguf")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"expert_count": 8}, "a model without experts"),
        ({"rope.scaling.type": "yarn"}, "rescaled rotary positions"),
        ({"rope.dimension_count": 4}, "rope.dimension_count is 4: expected 8"),
        ({"attention.sliding_window": 4}, "sliding_window=4"),
        ({"attention.head_count": None}, "attention.head_count is None: expected a positive whole number"),
        ({"attention.head_count": 0}, "attention.head_count is 0: expected a positive whole number"),
        ({"feed_forward_length": None}, "intermediate_size=None"),
        ({"block_count": 3}, "no weight 'model.layers.2"),
        ({"block_count": 1}, "have no place in the converted model"),
        ({"attention.head_count_kv": 3}, "does not split into pairs of 3 heads"),
    ],
)
def test_what_a_llama_does_not_have_is_refused_by_name(tmp_path: Path, change: dict[str, Any], fault: str) -> None:
    file = write_llama(tiny_model("llama"), tmp_path / "a.gguf", **change)
    with pytest.raises(ImirError, match=fault) as error:
        load_checkpoint(file)
    assert str(error.value).startswith(str(file))


def _string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def _header(entries: int = 0, tensors: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, entries)


_ENDLESS_LIST = _header(1) + _string(b"a") + struct.pack("<IIQ", 9, 0, 2**60) + b"\0" * 8
_ENDLESS_TEXTS = _header(1) + _string(b"a") + struct.pack("<IIQ", 9, 8, 2**60) + b"\0" * 64


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "the file is empty"),
        (b"GG", "not a GGUF file"),
        (b"PK\3\4 something else", "not a GGUF file"),
        (b"GGUF", "damaged or truncated"),
        (_header(version=1), "GGUF version 1"),
        (_header(version=3 << 24), "GGUF version 50331648"),
        (_header(entries=2**63), "damaged or truncated"),
        (_header(tensors=2**63), "no room for"),
        (_ENDLESS_LIST, "damaged or truncated"),
        (_ENDLESS_TEXTS, "no room for"),
        (_header(1) + struct.pack("<Q", 2**62) + b"a", "damaged or truncated"),
        (_header(1) + _string(b"a") + struct.pack("<I", 77), "a value of type 77"),
        (_header(1) + _string(b"a") + struct.pack("<IIQ", 9, 9, 1), "a list of values of type 9"),
        (_header(1) + _string(b"general.alignment") + struct.pack("<II", 4, 0), "general.alignment is 0"),
        (_header(0, 1) + _string(b"a") + struct.pack("<I", 9) + b"\0" * 80, "a tensor with 9 axes"),
        (_header(), "a GGUF file of architecture None"),
    ],
)  # fmt: skip
def test_damaged_files_are_refused_at_once(tmp_path: Path, data: bytes, fault: str) -> None:
    # The endless lists make the reader of the package gguf go on without end.
    file = tmp_path / "a.gguf"
    file.write_bytes(data)
    with pytest.raises((CheckpointError, UnsupportedModelError), match=fault) as error:
        load_checkpoint(file)
    assert str(error.value).startswith(str(file))


@pytest.mark.parametrize("seed", range(40))
def test_flipped_and_missing_bytes_never_escape_as_another_error(tmp_path: Path, seed: int) -> None:
    file = write_llama(tiny_model("llama"), tmp_path / "a.gguf")
    data = bytearray(file.read_bytes())
    dice = np.random.default_rng(seed)
    if seed % 4 == 0:
        del data[dice.integers(len(data)) :]
    for place in dice.integers(min(len(data), 3000), size=2):  # where metadata and the list of tensors are
        data[place] = dice.integers(256)
    file.write_bytes(data)
    try:
        load_transformer(file)
    except ImirError as error:
        assert str(file) in str(error)
        assert "\n" not in str(error)

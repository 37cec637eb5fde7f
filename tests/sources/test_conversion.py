import json
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from plain_models import HEADS, JointGPT, shaken
from tiny_models import logits_of, saved, tiny_model, tokens

from imir_lens.checkpoints import load_checkpoint, load_transformer
from imir_lens.errors import CheckpointError, OptionError
from imir_lens.sources import conversion
from imir_lens.sources.conversion import convert_checkpoint

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["gpt2", "llama tied", "gpt_neox"])
def test_what_is_written_was_compared_with_another_librarys_logits(tmp_path: Path, kind: str) -> None:
    model = tiny_model(kind)
    done = convert_checkpoint(saved(model, tmp_path / "source"), tmp_path / "out")
    assert done.compared_with.startswith("transformers ")
    assert 0 < done.difference < 1e-4 < done.largest_logit
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"model.safetensors", "config.json"}
    theirs = logits_of(model)
    assert (load_transformer(tmp_path / "out")(tokens()) - theirs).abs().max() < 1e-4 < theirs.std()
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["n_layers"] == 2
    assert "model_type" not in config


def test_a_gguf_file_is_compared_with_another_librarys_logits(tmp_path: Path) -> None:
    from gguf_writer import write_llama

    done = convert_checkpoint(write_llama(tiny_model("llama"), tmp_path / "model.gguf"), tmp_path / "out")
    assert done.compared_with.startswith("transformers ")
    assert 0 < done.difference < 1e-4 < done.largest_logit


def test_files_of_other_formats_are_compared_with_the_source_as_read(tmp_path: Path) -> None:
    done = convert_checkpoint(DATA / "recall_2l.pt", tmp_path / "ours")
    assert (done.compared_with, done.difference) == ("the source as read here", 0.0)
    assert done.sha256 == load_checkpoint(DATA / "recall_2l.pt").sha256
    model = shaken(JointGPT(nano=True))
    torch.save(model.state_dict(), tmp_path / "nano.pt")
    done = convert_checkpoint(tmp_path / "nano.pt", tmp_path / "nano", overrides={"n_heads": HEADS}, names="nanogpt")
    with torch.no_grad():
        assert (load_transformer(done.path.parent)(tokens()) - model(tokens())).abs().max() < 1e-4


@torch.no_grad()
def test_half_precision_halves_the_file_and_moves_logits_a_little(tmp_path: Path) -> None:
    model = saved(tiny_model("llama"), tmp_path / "source")
    whole = convert_checkpoint(model, tmp_path / "whole")
    half = convert_checkpoint(model, tmp_path / "half", dtype="bfloat16")
    assert half.path.stat().st_size < 0.6 * whole.path.stat().st_size
    assert whole.difference < 1e-4 < half.difference < 0.1 * half.largest_logit
    assert load_checkpoint(tmp_path / "half").config["dtype"] == "torch.bfloat16"
    with pytest.raises(OptionError, match="dtype 'int8': expected one of float32"):
        convert_checkpoint(model, tmp_path / "other", dtype="int8")


def test_a_translation_that_computes_something_else_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = saved(tiny_model("llama"), tmp_path / "source")
    real = conversion.load_checkpoint

    def wrong_rotary_order(*args: Any, **options: Any) -> Any:
        checkpoint = real(*args, **options)
        checkpoint.config["rotary_adjacent_pairs"] = True
        return checkpoint

    monkeypatch.setattr(conversion, "load_checkpoint", wrong_rotary_order)
    with pytest.raises(CheckpointError, match=r"not converted: logits differ by .* from those by transformers"):
        convert_checkpoint(model, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_the_source_is_not_overwritten(tmp_path: Path) -> None:
    model = saved(tiny_model("llama"), tmp_path / "source")
    before = (model / "config.json").read_bytes()
    with pytest.raises(OptionError, match="the source lies there"):
        convert_checkpoint(model, tmp_path / "source")
    assert (model / "config.json").read_bytes() == before

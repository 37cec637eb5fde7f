"""Series of checkpoints: run directories, patterns, directories of models."""

import shutil
from pathlib import Path

import pytest

from imir_lens.checkpoints import checkpoint_series, load_checkpoint
from imir_lens.errors import CheckpointError

DATA = Path(__file__).parent / "data"


def _copy(place: Path, source: str = "recall_2l.pt") -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    (shutil.copytree if (DATA / source).is_dir() else shutil.copy)(DATA / source, place)
    return place


def test_a_pattern_gives_files_in_the_order_of_their_steps(tmp_path: Path) -> None:
    files = [_copy(tmp_path / "runs" / run / f"step_{step}.pt") for step, run in ((9, "b"), (10, "a"), (100, "a"))]
    _copy(tmp_path / "runs" / "a" / "final.pt")
    (tmp_path / "runs" / "a" / "step_1.txt").write_text("no checkpoint")
    found = checkpoint_series(tmp_path / "runs" / "*" / "*")
    assert found == list(zip((9, 10, 100), files, strict=True))
    assert checkpoint_series(str(tmp_path / "runs" / "**" / "step_1*.pt")) == found[1:]
    assert [load_checkpoint(path).step for _, path in found] == [9, 10, 100]


def test_directories_of_models_are_a_series_too(tmp_path: Path) -> None:
    for step in (500, 1000, 50):
        _copy(tmp_path / "run" / f"checkpoint-{step}", "recall_ln_mlp")
    (tmp_path / "run" / "checkpoint-7").mkdir()  # without a model
    expected = [(step, tmp_path / "run" / f"checkpoint-{step}" / "model.safetensors") for step in (50, 500, 1000)]
    assert checkpoint_series(tmp_path / "run") == expected
    assert checkpoint_series(tmp_path / "run" / "checkpoint-*") == expected
    last = load_checkpoint(tmp_path / "run")
    assert (last.step, last.config["act_fn"]) == (1000, "gelu")


def test_a_pattern_without_numbered_files_is_refused(tmp_path: Path) -> None:
    _copy(tmp_path / "final.pt")
    for pattern in ("*.pt", "nowhere/*.pt"):
        with pytest.raises(CheckpointError, match="no numbered checkpoint matches"):
            checkpoint_series(tmp_path / pattern)


def test_a_directory_whose_name_looks_like_a_pattern_is_a_directory(tmp_path: Path) -> None:
    _copy(tmp_path / "run[1]" / "step_3.pt")
    assert [step for step, _ in checkpoint_series(tmp_path / "run[1]")] == [3]

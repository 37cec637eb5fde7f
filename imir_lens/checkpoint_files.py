"""Where a checkpoint's bytes are: files, run directories, Hugging Face directories, and atomic writes."""

import json
import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from imir_lens.errors import CheckpointError, OptionError
from imir_lens.sources.hugging_face import is_hugging_face
from imir_lens.sources.weight_files import INDEX

SUFFIXES = (".safetensors", ".pt", ".pth")
_READABLE = (*SUFFIXES, ".gguf")
# What a Hugging Face model's weights are called, the safe format first.
_STANDARD = ("model.safetensors", f"model.safetensors{INDEX}", "pytorch_model.bin", f"pytorch_model.bin{INDEX}")
_STEP = re.compile(r"(?:step|checkpoint|ckpt|iter|epoch)[_-]?(\d+)", re.IGNORECASE)


def read_bytes(path: Path) -> bytes:
    """Return a file's bytes.

    Raises:
        CheckpointError: when it is missing, unreadable or empty.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file or directory") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    if not data:
        raise CheckpointError(f"{path}: the file is empty")
    return data


def read_config(path: Path) -> dict[str, Any]:
    """Read a `config.json`, HookedTransformer's or a Hugging Face model's.

    Raises:
        CheckpointError: when it is missing or not a JSON object.
    """
    try:
        config = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not valid JSON ({error}): expected the model's config as an object") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{path}: expected a JSON object with the model's config, found {type(config).__name__}")
    return config


def step_of(path: Path) -> int | None:
    """Return the training step in a checkpoint's name, e.g. 1000 for `step_00001000.pt`; None when it has none.

    A file with one of Hugging Face's standard names has the step of its directory: `checkpoint-500/model.safetensors`.
    """
    name = path.parent.name if path.name in _STANDARD else path.stem if path.suffix in _READABLE else ""
    match = _STEP.search(name)
    return int(match[1]) if match else None


def files_in(folder: Path) -> list[Path]:
    """Return the checkpoint files directly in a folder, by name; none when there is no such folder."""
    return [p for p in _entries(folder) if p.suffix in _READABLE and p.is_file() and p.name[0] != "."]


def numbered(paths: Iterable[Path]) -> list[tuple[int, Path]]:
    """Return the checkpoints among files and directories that have a step in their names, by step."""
    files = {weights_in(p) if p.is_dir() else p for p in paths}
    return sorted((step, p) for p in files if p is not None and (step := step_of(p)) is not None)


def weights_in(folder: Path) -> Path | None:
    """Return the weights of a directory with `config.json` and weights under a standard name; None for any other."""
    if not (folder / "config.json").is_file():
        return None
    return next((folder / name for name in _STANDARD if (folder / name).is_file()), None)


def series(path: Path) -> list[tuple[int, Path]]:
    """Return the numbered checkpoints of a run directory by step, from `PATH/checkpoints` or `PATH`; maybe none."""
    for folder in (path / "checkpoints", path):
        folders = [p for p in _entries(folder) if p.is_dir()]
        if found := numbered([*files_in(folder), *folders]):
            return found
    return []


def resolve(path: Path) -> Path:
    """Return the checkpoint file that a path means.

    A file is itself. A Hugging Face model is its weights. A run directory is its last numbered checkpoint. Any other
    directory must hold one checkpoint file, or `model.safetensors`.

    Raises:
        CheckpointError: when a directory holds no checkpoint, or several without a step in their names.
    """
    if not path.is_dir():
        return path
    config = read_config(path / "config.json") if (path / "config.json").exists() else None
    if is_hugging_face(config) and (weights := weights_in(path)):
        return weights
    if found := series(path):
        return found[-1][1]
    files = files_in(path)
    if (path / "model.safetensors") in files:
        return path / "model.safetensors"
    if not files:
        raise CheckpointError(
            f"{path}: a directory without a checkpoint: expected checkpoints/step_*.pt, config.json with "
            "model.safetensors or a .pth file, or a .gguf file"
        )
    if len(files) > 1:
        names = ", ".join(p.name for p in files[:3]) + (", …" if len(files) > 3 else "")
        raise CheckpointError(f"{path}: holds {len(files)} checkpoints ({names}): name one of them")
    return files[0]


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CheckpointError(f"{folder}: cannot be read: {error.strerror}") from error


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old contents or the new ones, never a part.

    Raises:
        OptionError: when the place cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    except OSError as error:
        raise OptionError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes it private; a checkpoint is an ordinary file
        os.replace(temporary, path)
    except OSError as error:
        raise OptionError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask

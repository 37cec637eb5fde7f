"""Where a checkpoint's bytes are: files, run directories, Hugging Face-like directories, and atomic writes."""

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from imir_lens.errors import CheckpointError, OptionError, UnsupportedModelError

SUFFIXES = (".safetensors", ".pt", ".pth")
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
    """Read a `config.json` with HookedTransformer fields.

    Raises:
        CheckpointError: when it is missing or not a JSON object.
        UnsupportedModelError: when it is the config of a Hugging Face model.
    """
    try:
        config = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not valid JSON ({error}): expected the model's config as an object") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{path}: expected a JSON object with the model's config, found {type(config).__name__}")
    if "architectures" in config or "model_type" in config:
        what = config.get("architectures") or config["model_type"]
        raise UnsupportedModelError(
            f"{path}: a Hugging Face model ({what}) is not supported yet: "
            "expected a HookedTransformer's config (n_layers, n_heads, d_model, …)"
        )
    return config


def step_of(path: Path) -> int | None:
    """Return the training step in a checkpoint file's name, e.g. 1000 for `step_00001000.pt`; None when it has none."""
    match = _STEP.search(path.stem) if path.suffix in SUFFIXES else None
    return int(match[1]) if match else None


def files_in(folder: Path) -> list[Path]:
    """Return the checkpoint files directly in a folder, by name; none when there is no such folder."""
    try:
        return sorted(p for p in folder.iterdir() if p.suffix in SUFFIXES and p.is_file() and p.name[0] != ".")
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CheckpointError(f"{folder}: cannot be read: {error.strerror}") from error


def series(path: Path) -> list[tuple[int, Path]]:
    """Return the numbered checkpoints of a run directory by step, from `PATH/checkpoints` or `PATH`; maybe none."""
    for folder in (path / "checkpoints", path):
        if found := sorted((step, p) for p in files_in(folder) if (step := step_of(p)) is not None):
            return found
    return []


def resolve(path: Path) -> Path:
    """Return the checkpoint file that a path means.

    A file is itself. A run directory is its last numbered checkpoint. Any other directory must hold one checkpoint
    file, or `model.safetensors`.

    Raises:
        CheckpointError: when a directory holds no checkpoint, or several without a step in their names.
        UnsupportedModelError: for a directory with a Hugging Face model.
    """
    if not path.is_dir():
        return path
    if numbered := series(path):
        return numbered[-1][1]
    if (path / "config.json").exists():
        read_config(path / "config.json")
    files = files_in(path)
    if (path / "model.safetensors") in files:
        return path / "model.safetensors"
    if not files:
        raise CheckpointError(
            f"{path}: a directory without a checkpoint: expected checkpoints/step_*.pt, or config.json with "
            "model.safetensors or a .pth file"
        )
    if len(files) > 1:
        names = ", ".join(p.name for p in files[:3]) + (", …" if len(files) > 3 else "")
        raise CheckpointError(f"{path}: holds {len(files)} checkpoints ({names}): name one of them")
    return files[0]


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

"""Reading the tensors of a file, or of a model that is spread over several, and the hash of what was read."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from imir_lens.errors import CheckpointError
from imir_lens.safe_torch import read_torch

INDEX = ".index.json"
_CHUNK = 1 << 24


def sha256_of(path: Path) -> str:
    """Return a file's SHA-256, without holding the file in memory.

    Raises:
        CheckpointError: when it is missing, unreadable or empty.
    """
    digest = hashlib.sha256()
    size = 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                size += len(chunk)
                digest.update(chunk)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file or directory") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    if not size:
        raise CheckpointError(f"{path}: the file is empty")
    return digest.hexdigest()


def read_weights(path: Path) -> tuple[object, str]:
    """Read what a file holds; nothing in it is executed.

    Args:
        path: a `.safetensors` file, one written by torch.save, or the index of a model in several files, such as
            `model.safetensors.index.json`.

    Returns:
        what was saved, and the SHA-256 of the file; of several, that of their SHA-256 in order of name.

    Raises:
        CheckpointError: when a file is missing, damaged, unsafe, or not a checkpoint.
    """
    if path.name.endswith(INDEX):
        return _read_shards(path)
    digest = sha256_of(path)
    if path.suffix != ".safetensors":
        return read_torch(path.read_bytes(), name=str(path)), digest
    try:
        return safetensors.torch.load_file(path), digest
    except (SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path}: not a safetensors file, or damaged or truncated ({error})") from error


def _read_shards(index: Path) -> tuple[dict[str, Tensor], str]:
    wanted = _weight_map(index)
    state: dict[str, Tensor] = {}
    digest = hashlib.sha256()
    for name in sorted(set(wanted.values())):
        payload, of_file = read_weights(index.parent / name)
        if not isinstance(payload, Mapping):
            raise CheckpointError(f"{index.parent / name}: expected named tensors, found a {type(payload).__name__}")
        digest.update(of_file.encode())
        if twice := sorted(set(state) & set(payload)):
            raise CheckpointError(f"{index.parent / name}: holds {twice[0]!r}, which an earlier file holds too")
        state.update(payload)
    if missing := sorted(set(wanted) - set(state)):
        raise CheckpointError(f"{index}: names {missing[0]!r}, which is in none of its files")
    return state, digest.hexdigest()


def _weight_map(index: Path) -> dict[str, str]:
    try:
        content: Any = json.loads(index.read_bytes())
    except FileNotFoundError:
        raise CheckpointError(f"{index}: no such file or directory") from None
    except OSError as error:
        raise CheckpointError(f"{index}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{index}: not valid JSON ({error})") from error
    files = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(files, dict) or not files or not all(isinstance(name, str) for name in files.values()):
        raise CheckpointError(f"{index}: expected a 'weight_map' from weights to file names")
    for name in files.values():
        # A name that leads elsewhere, or to another index, is not a shard of this model.
        if Path(name).name != name or name.endswith(INDEX) or not name.isprintable():
            raise CheckpointError(f"{index}: names {name!r}: expected files beside it")
    return files

"""Reading a torch file without running anything that is in it.

`torch.load(weights_only=True)` builds tensors and plain containers only. TransformerLens writes numpy scalars and
dtypes into its `cfg`, so those are allowed too; every other class stops the load before it is imported or called.
"""

import io
import pickle
import re
import struct
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from imir_lens.errors import CheckpointError

_ZIP, _PICKLE = b"PK", b"\x80"
_FOREIGN = re.compile(r"(?:GLOBAL|[Cc]lass) ([\w.]+) (?:was not an allowed global|whose module)")
# What torch's unpickler raises on damaged bytes: they are read as opcodes, so nearly any lookup may fail.
_DAMAGE = (
    RuntimeError,
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    OverflowError,
    MemoryError,
    struct.error,
)


def _allowed() -> list:
    """Return the only globals a checkpoint may name besides tensors: numpy scalars and numeric dtypes."""
    core = getattr(np, "_core", None) or np.core  # numpy 2 renamed it; files of both versions exist
    scalar = core.multiarray.scalar
    dtypes = {type(np.dtype(kind)) for kind in (np.float64, np.float32, np.int64, np.int32, np.bool_)}
    return [
        (scalar, "numpy.core.multiarray.scalar"),
        (scalar, "numpy._core.multiarray.scalar"),
        np.dtype,
        *dtypes,
    ]


@contextmanager
def _only_allowed_globals() -> Iterator[None]:
    """Allow exactly ours: what the process has allowed elsewhere does not apply to a file of unknown origin."""
    before = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals(_allowed())
    try:
        yield
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(before)


def read_torch(data: bytes, *, name: str) -> object:
    """Read the bytes of a `.pt` or `.pth` file.

    Args:
        data: the whole file.
        name: the file's name, for messages.

    Returns:
        What was saved: tensors, numbers and text in plain containers, on the CPU.

    Raises:
        CheckpointError: when the bytes are not a torch file, are damaged, or hold an object of any other class.
    """
    if not data.startswith((_ZIP, _PICKLE)):
        raise CheckpointError(
            f"{name}: not a checkpoint: expected a file written by torch.save or safetensors, found {data[:16]!r}…"
        )
    try:
        with _only_allowed_globals(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about old formats; the user cannot act on it here
            return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except _DAMAGE as error:
        raise CheckpointError(f"{name}: {_explain(error, data)}") from error


def _explain(error: BaseException, data: bytes) -> str:
    text = str(error)
    if match := _FOREIGN.search(text):
        return _explain_foreign(match[1])
    if "TorchScript" in text:
        return "a TorchScript archive, which is code: save model.state_dict() with torch.save instead"
    if data.startswith(_ZIP) and _is_other_archive(data):
        return "a zip archive, but not one written by torch.save"
    if data.startswith(_ZIP):
        return "damaged or truncated: torch cannot read its zip archive; copy or save it again"
    return "not a checkpoint, or damaged: its bytes do not read as a file written by torch.save"


def _is_other_archive(data: bytes) -> bool:
    try:
        return not any(name.endswith("data.pkl") for name in zipfile.ZipFile(io.BytesIO(data)).namelist())
    except (zipfile.BadZipFile, ValueError, LookupError, NotImplementedError, OSError, struct.error):
        return False


def _explain_foreign(cls: str) -> str:
    if cls.startswith("transformer_lens."):
        return (
            f"holds a pickled object of class {cls}, and pickled objects are never loaded: in an environment with "
            "TransformerLens <4, load it and torch.save({'state_dict': model.state_dict(), 'cfg': model.cfg.to_dict()})"
        )
    return (
        f"its pickle refers to {cls}, which is never loaded (nothing in the file was executed): "
        "save tensors and plain values only, e.g. torch.save({'state_dict': model.state_dict(), 'cfg': {...}})"
    )

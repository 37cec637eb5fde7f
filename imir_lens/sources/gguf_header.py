"""The metadata and the list of tensors of a `.gguf` file, with every length checked before it is believed.

The package `gguf` has a reader too, but it follows the lengths that a damaged file claims, without end if need be.

Layout, all little-endian: b"GGUF", version u32, tensors u64, entries u64; per entry a name, a type u32 and a value; per
tensor a name, axes u32, sizes u64 each (fastest first), type u32, offset u64; padding; the numbers.
"""

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from imir_lens.errors import CheckpointError, UnsupportedModelError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", _BOOL: "?", 10: "Q", 11: "q", 12: "d"}
_MOST_AXES = 4
_ALIGNMENT = "general.alignment"


@dataclass(frozen=True)
class GgufTensor:
    """One tensor, still encoded.

    Attributes:
        shape: slowest axis first, as torch counts.
        kind: how its numbers are encoded: 0 is float32, 1 float16, most others are blocks of quantised numbers.
        start: the place of its first byte in the file.
    """

    shape: tuple[int, ...]
    kind: int
    start: int


@dataclass(frozen=True)
class GgufFile:
    """A file that was read up to its numbers.

    Attributes:
        metadata: name → number, text, list of texts or array of numbers.
        tensors: name → tensor.
        data: the whole file.
    """

    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]
    data: memoryview

    def bytes_of(self, tensor: GgufTensor, count: int) -> memoryview:
        """Return the encoded numbers; raises CheckpointError when the file ends before they do."""
        if tensor.start + count > len(self.data):
            raise CheckpointError(
                f"damaged or truncated: a tensor of shape {list(tensor.shape)} should end at byte "
                f"{tensor.start + count:,}, the file has {len(self.data):,}"
            )
        return self.data[tensor.start : tensor.start + count]


def read_header(path: Path) -> GgufFile:
    """Read everything but the numbers.

    Args:
        path: the file, which is mapped into memory, not copied.

    Raises:
        CheckpointError: when it is missing, no GGUF file, damaged or truncated.
        UnsupportedModelError: for a version that is not known.
    """
    try:
        with path.open("rb") as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file or directory") from None
    except ValueError:
        raise CheckpointError(f"{path}: the file is empty") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    cursor = _Cursor(data)
    if (magic := bytes(cursor.take(min(4, len(data))))) != _MAGIC:
        raise CheckpointError(f"{path}: not a GGUF file: expected it to begin with {_MAGIC!r}, found {magic!r}")
    version = cursor.number("I")
    if version not in _VERSIONS:
        raise UnsupportedModelError(f"{path}: GGUF version {version}: expected one of {_VERSIONS}, little-endian")
    tensor_count, entry_count = cursor.number("Q"), cursor.number("Q")
    metadata: dict[str, Any] = {}
    for _ in range(entry_count):
        name = cursor.text()
        metadata[name] = cursor.value(cursor.number("I"))
    described = [cursor.tensor() for _ in range(cursor.fitting(tensor_count, 24))]
    alignment = metadata.get(_ALIGNMENT, 32)
    if not isinstance(alignment, int) or not 0 < alignment <= 2**20:
        raise CheckpointError(f"damaged: {_ALIGNMENT} is {alignment!r}")
    start = -(-cursor.place // alignment) * alignment
    tensors = {name: GgufTensor(shape, kind, start + offset) for name, shape, kind, offset in described}
    if len(tensors) < tensor_count:
        raise CheckpointError("damaged: two tensors have one name")
    return GgufFile(metadata, tensors, data)


class _Cursor:
    """Reads on from a place in the file, and never past its end."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.place = 0

    def take(self, count: int) -> memoryview:
        if count > len(self._data) - self.place:
            raise CheckpointError(
                f"damaged or truncated: {count:,} bytes were expected at byte {self.place:,}, the file has "
                f"{len(self._data):,}"
            )
        self.place += count
        return self._data[self.place - count : self.place]

    def fitting(self, count: int, size: int) -> int:
        """Return a count of items that take `size` bytes at least, if that many are left."""
        if count * size > len(self._data) - self.place:
            raise CheckpointError(f"damaged or truncated: no room for {count:,} items at byte {self.place:,}")
        return count

    def number(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def text(self) -> str:
        return str(self.take(self.number("Q")), "utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind != _ARRAY:
            raise CheckpointError(f"damaged: a value of type {kind} at byte {self.place:,}")
        item, count = self.number("I"), self.number("Q")
        if item == _STRING:
            return [self.text() for _ in range(self.fitting(count, 8))]
        if item not in _SCALARS:
            raise CheckpointError(f"damaged: a list of values of type {item} at byte {self.place:,}")
        dtype = np.dtype("<" + _SCALARS[item]) if item != _BOOL else np.dtype("?")
        return np.frombuffer(self.take(count * dtype.itemsize), dtype)

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self.text()
        axes = self.number("I")
        if axes > _MOST_AXES:
            raise CheckpointError(f"damaged: a tensor with {axes} axes at byte {self.place:,}")
        sizes = tuple(self.number("Q") for _ in range(axes))
        return name, sizes[::-1], self.number("I"), self.number("Q")

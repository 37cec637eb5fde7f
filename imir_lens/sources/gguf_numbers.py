"""The numbers of a `.gguf` tensor as float32; blocks of quantised numbers are read by the package `gguf`."""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.errors import CheckpointError, OptionError, UnsupportedModelError
from imir_lens.sources.gguf_header import GgufFile

_PLAIN = {0: torch.float32, 1: torch.float16, 28: torch.float64, 30: torch.bfloat16}


def dequantised(file: GgufFile, name: str) -> Float[Tensor, "..."]:
    """Return a tensor in float32, as a copy.

    Args:
        file: the file, from `read_header`.
        name: the tensor's name.

    Raises:
        OptionError: when it is quantised and the package `gguf` is not installed.
        CheckpointError: when the file ends before its numbers, or its rows do not split into blocks.
        UnsupportedModelError: for a quantisation that cannot be read back.
    """
    tensor = file.tensors[name]
    count = math.prod(tensor.shape)
    if not count:
        raise CheckpointError(f"damaged: {name!r} has shape {list(tensor.shape)}")
    if tensor.kind in _PLAIN:
        dtype = _PLAIN[tensor.kind]
        plain = bytearray(file.bytes_of(tensor, count * dtype.itemsize))
        return torch.frombuffer(plain, dtype=dtype).reshape(tensor.shape).float()
    try:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
        from gguf.quants import dequantize
    except ImportError:
        raise OptionError(
            f"{name!r} is quantised, and reading it needs the package gguf: pip install 'imir-lens[gguf]'"
        ) from None
    try:
        kind = GGMLQuantizationType(tensor.kind)
        per_block, size = GGML_QUANT_SIZES[kind]
    except (ValueError, KeyError):
        raise UnsupportedModelError(f"{name!r} has an encoding that is not known: type {tensor.kind}") from None
    *rows, width = tensor.shape
    if width % per_block:
        raise CheckpointError(f"damaged: {name!r} has rows of {width}, which are no blocks of {per_block} numbers")
    row_bytes = width // per_block * size
    encoded = np.frombuffer(file.bytes_of(tensor, math.prod(rows) * row_bytes), np.uint8).reshape(*rows, row_bytes)
    try:
        with np.errstate(all="ignore"):  # damaged blocks give NaN, which is refused with the tensor's name later
            values = dequantize(encoded, kind)
    except NotImplementedError:
        raise UnsupportedModelError(f"{name!r} is quantised as {kind.name}, which gguf cannot read back") from None
    return torch.from_numpy(np.array(values, dtype=np.float32).reshape(tensor.shape))

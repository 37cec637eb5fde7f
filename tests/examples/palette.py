"""PNG pictures of pages made small: 256 colours are enough for text and lines, and take a third of the room."""

import struct
import zlib
from collections import Counter
from collections.abc import Iterator

import numpy as np

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def with_palette(png: bytes) -> bytes:
    """Return the picture in its 256 commonest colours; others become the nearest of these.

    Args:
        png: 8 bits a channel, red, green and blue, not interlaced: what chromium writes.
    """
    pixels = _decoded(png)
    height, width, _ = pixels.shape
    colours, place = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True)
    counted = Counter(place.ravel().tolist())
    kept = [colour for colour, _ in counted.most_common(256)]
    distance = ((colours[:, None].astype(int) - colours[kept].astype(int)) ** 2).sum(-1)
    indices = distance.argmin(1).astype(np.uint8)[place].reshape(height, width)
    rows = b"".join(b"\0" + row.tobytes() for row in indices)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = {b"IHDR": header, b"PLTE": colours[kept].tobytes(), b"IDAT": zlib.compress(rows, 9), b"IEND": b""}
    return _SIGNATURE + b"".join(_chunk(kind, data) for kind, data in parts.items())


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(_SIGNATURE)
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at : at + 8])
        yield kind, png[at + 8 : at + 8 + size]
        at += 12 + size


def _decoded(png: bytes) -> np.ndarray:
    """Return the picture as [row, column, channel]."""
    width, height, depth, kind = struct.unpack(">IIBB", dict(_chunks(png))[b"IHDR"][:10])
    assert (depth, kind) == (8, 2), "expected 8 bits a channel, red, green and blue"
    data = zlib.decompress(b"".join(part for name, part in _chunks(png) if name == b"IDAT"))
    rows = np.frombuffer(data, np.uint8).reshape(height, 1 + 3 * width)
    out = np.zeros((height + 1, width + 1, 3), int)  # a row above and a column to the left, of zeros
    for y, row in enumerate(rows, start=1):
        given, above = row[1:].reshape(width, 3).astype(int), out[y - 1]
        for x in range(1, width + 1):
            left, up, corner = out[y, x - 1], above[x], above[x - 1]
            out[y, x] = (given[x - 1] + _predicted(row[0], left, up, corner)) & 255
    return out[1:, 1:].astype(np.uint8)


def _predicted(kind: int, left: np.ndarray, up: np.ndarray, corner: np.ndarray) -> np.ndarray:
    """What a filter of the PNG specification adds."""
    if kind < 4:
        return (0, left, up, (left + up) // 2)[kind]
    guess = left + up - corner
    off = [abs(guess - near) for near in (left, up, corner)]
    return np.where((off[0] <= off[1]) & (off[0] <= off[2]), left, np.where(off[1] <= off[2], up, corner))

"""What was measured at each checkpoint, kept as it comes: an interrupted trajectory goes on where it stopped."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError

from imir_lens.checkpoint_files import write_atomically
from imir_lens.dynamics.trajectory_point import Point

FOLDER = "points"


class PointCache:
    """Measured points in a directory, one file each, named after the checkpoint's contents and the settings.

    Args:
        directory: where to keep them; None keeps nothing.
        settings: whatever else a point depends on, as JSON values.
    """

    def __init__(self, directory: Path | None, settings: Mapping[str, Any]) -> None:
        self.directory = directory
        self._settings = json.dumps(settings, sort_keys=True)

    def get(self, sha256: str) -> Point | None:
        """Return the point of a checkpoint; None when it was not measured, or its file is damaged."""
        if self.directory is None:
            return None
        file = self._file(sha256)
        try:
            with safetensors.safe_open(file, "pt") as opened:
                return Point(json.loads(opened.metadata()["facts"]), opened.get_tensor("values"))
        except (OSError, SafetensorError, ValueError, KeyError, TypeError):
            return None

    def add(self, sha256: str, point: Point) -> Point:
        """Keep a point, and return it.

        Raises:
            OptionError: when it cannot be written.
        """
        if self.directory is not None:
            metadata = {"facts": json.dumps(point.facts, allow_nan=False)}
            data = safetensors.torch.save({"values": point.values.contiguous()}, metadata)
            write_atomically(self._file(sha256), data)
        return point

    def _file(self, sha256: str) -> Path:
        assert self.directory is not None
        name = hashlib.sha256(f"{sha256}\n{self._settings}".encode()).hexdigest()
        return self.directory / f"{name[:32]}.safetensors"

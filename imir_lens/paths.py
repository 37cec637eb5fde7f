"""Residual paths: the chains of heads that content can take through the model.

The stream entering layer l is `x = Σ_p A_p · source · V_p` over the paths p through layers below l. Paths are kept in
an order in which those entering layer l are the first `n_entering[l]`, so that "everything upstream" is a slice.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from imir_lens.errors import CoordinateError
from imir_lens.ids import Head, Path


@dataclass(frozen=True)
class PathTable:
    """The paths a projection keeps.

    Attributes:
        n_layers: L.
        n_heads: H, heads per layer.
        paths: closed under prefixes, ordered by their last layer; `paths[0]` is the empty path.
    """

    n_layers: int
    n_heads: int
    paths: tuple[Path, ...]

    @classmethod
    def full(cls, n_layers: int, n_heads: int, *, max_depth: int | None = None) -> "PathTable":
        """All paths with at most `max_depth` heads (default: no limit), `(H+1)^L` of them without a limit."""
        paths = [Path()]
        for layer in range(n_layers):
            heads = [Head(layer, index) for index in range(n_heads)]
            entering = [path for path in paths if max_depth is None or len(path.heads) < max_depth]
            paths += [path.then(head) for head in heads for path in entering]
        return cls(n_layers, n_heads, tuple(paths))

    def restricted(self, keep: Iterable[Path]) -> "PathTable":
        """Return the table of the given paths and all their prefixes."""
        wanted = {Path(path.heads[:depth]) for path in keep for depth in range(len(path.heads) + 1)} | {Path()}
        return PathTable(self.n_layers, self.n_heads, tuple(path for path in self.paths if path in wanted))

    def __len__(self) -> int:
        return len(self.paths)

    @cached_property
    def index(self) -> dict[Path, int]:
        """Place of each path in `paths`."""
        return {path: place for place, path in enumerate(self.paths)}

    @cached_property
    def n_entering(self) -> tuple[int, ...]:
        """Number of paths entering each layer; the last entry counts those that reach the readout."""
        last = [path.heads[-1].layer if path.heads else -1 for path in self.paths]
        return tuple(sum(layer < l for layer in last) for l in range(self.n_layers + 1))  # noqa: E741

    @cached_property
    def heads(self) -> tuple[Head, ...]:
        """All heads, in order."""
        return tuple(Head(layer, index) for layer in range(self.n_layers) for index in range(self.n_heads))

    def extensions(self, head: Head) -> list[tuple[int, int]]:
        """Pairs (place of q, place of q·head) for every kept path that ends with `head`."""
        return [
            (self.index[Path(path.heads[:-1])], place)
            for place, path in enumerate(self.paths)
            if path.heads and path.heads[-1] == head
        ]

    def place(self, path: Path) -> int:
        """Return the path's place.

        Raises:
            CoordinateError: when the table does not hold it.
        """
        if path not in self.index:
            raise CoordinateError(
                f"path {path} is not among the {len(self)} kept paths of a model with {self.n_layers} layers "
                f"and {self.n_heads} heads a layer"
            )
        return self.index[path]

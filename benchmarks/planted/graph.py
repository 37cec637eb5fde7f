"""The edges of an attention-only transformer, and which of them a circuit of coordinates uses.

Writers are the token embedding and the heads; readers are every head's query, key and value, and the logits. Position
embeddings are no writers here: all contexts have the same positions, so that no detector which compares contexts could
see an edge that carries positions alone. Such edges are left out for everyone, ours included.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from imir_lens.ids import CoordinateId, Head, Path

SLOTS = ("q", "k", "v")


@dataclass(frozen=True)
class Edge:
    """One writer feeding one reader, printed `L0H0→L1H0.k`.

    Attributes:
        writer: a head; None for the token embedding.
        reader: a head; None for the logits.
        slot: which input of the reading head, `q`, `k` or `v`; empty for the logits.
    """

    writer: Head | None
    reader: Head | None
    slot: str

    def __str__(self) -> str:
        reader = "logits" if self.reader is None else f"{self.reader}.{self.slot}"
        return f"{'tokens' if self.writer is None else self.writer}→{reader}"


@dataclass(frozen=True)
class EdgeGraph:
    """All edges of a model of L layers of H heads.

    They lie layer by layer as blocks `[slot, head, writer]`, then the logits' `[writer]`; writers are the embedding,
    then the heads in order, so that the first `1 + l H` are those that layer l can read.
    """

    n_layers: int
    n_heads: int

    @cached_property
    def heads(self) -> tuple[Head, ...]:
        """All heads, in order."""
        return tuple(Head(layer, index) for layer in range(self.n_layers) for index in range(self.n_heads))

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """All edges, in the order that masks and scores have."""
        out = []
        for layer in range(self.n_layers):
            writers = (None, *self.heads[: layer * self.n_heads])
            readers = [(Head(layer, index), slot) for slot in SLOTS for index in range(self.n_heads)]
            out += [Edge(writer, head, slot) for head, slot in readers for writer in writers]
        return (*out, *(Edge(writer, None, "") for writer in (None, *self.heads)))

    @cached_property
    def index(self) -> dict[Edge, int]:
        """Place of each edge."""
        return {edge: place for place, edge in enumerate(self.edges)}

    def block(self, layer: int) -> slice:
        """The edges into one layer; into the logits for `layer = n_layers`."""
        sizes = [3 * self.n_heads * (1 + below * self.n_heads) for below in range(self.n_layers)]
        sizes.append(1 + len(self.heads))
        return slice(sum(sizes[:layer]), sum(sizes[: layer + 1]))


def edges_of(coordinate: CoordinateId) -> set[Edge]:
    """Return the edges that carry tokens through one coordinate.

    The content of a path starts at the tokens, or at positions for an offset (that first edge is left out), and passes
    from head to head as a value; the last head, or the source itself, is read as a query, as a key, or by the logits.
    """
    slots = {"": coordinate.key} if coordinate.head is None else {"q": coordinate.query, "k": coordinate.key}
    found = set()
    for slot, path in slots.items():
        if path is not None:
            found |= path_edges(path, coordinate.head, slot, tokens=coordinate.offset is None)
    return found


def path_edges(path: Path, reader: Head | None, slot: str, *, tokens: bool) -> set[Edge]:
    """Return the edges along one path into a reader; `tokens` tells whether tokens flow on it, or positions."""
    writers: list[Head | None] = [None, *path.heads]
    readers = [*((head, "v") for head in path.heads), (reader, slot)]
    edges = {Edge(writer, head, into) for writer, (head, into) in zip(writers, readers, strict=True)}
    return edges if tokens else {edge for edge in edges if edge.writer is not None}


def heads_of(coordinate: CoordinateId) -> set[Head]:
    """Return the heads that one coordinate involves: its own, and those on its paths."""
    own = set() if coordinate.head is None else {coordinate.head}
    return own | {head for path in coordinate.paths for head in path.heads}


@dataclass(frozen=True)
class Truth:
    """What a planted circuit consists of."""

    coordinates: frozenset[str]
    heads: frozenset[Head]
    edges: frozenset[Edge]

    @classmethod
    def of(cls, circuit: Iterable[str]) -> "Truth":
        """Read it off the coordinates' ids."""
        ids = [CoordinateId.parse(text) for text in circuit]
        heads = {head for name in ids for head in heads_of(name)}
        edges = {edge for name in ids for edge in edges_of(name)}
        return cls(frozenset(map(str, ids)), frozenset(heads), frozenset(edges))

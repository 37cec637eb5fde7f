"""From coordinates to what has to be built: which contents each head copies, and what scores and logits are made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.errors import CoordinateError, did_you_mean
from imir_lens.ids import CoordinateId, Head, Path
from imir_lens.relations import TokenRelations
from imir_lens.tasks.base import Task


def shift_matrix(n: int, k: int) -> Float[Tensor, "query key"]:
    """Return `offset+k` as a 0/1 matrix: 1 where the key is k positions before the query.

    >>> shift_matrix(3, 1)
    tensor([[0., 0., 0.],
            [1., 0., 0.],
            [0., 1., 0.]])
    """
    position = torch.arange(n)
    return (position.unsqueeze(1) - position.unsqueeze(0) == k).float()


@dataclass(frozen=True)
class Content:
    """What one path carries of one source, `tok` or `pos`."""

    source: str
    path: Path


@dataclass(frozen=True)
class Term:
    """One part of a head's score: the matrix `coordinate · R` between two contents.

    Without a query the matrix has one row, and the query is the constant 1.
    """

    query: Content | None
    key: Content
    matrix: Float[Tensor, "query_index key_index"]


@dataclass(frozen=True)
class Readout:
    """One part of the logits: the matrix `coordinate · R` from a content, or a bias of one row."""

    content: Content | None
    matrix: Float[Tensor, "index vocab"]


@dataclass
class Blueprint:
    """A circuit, sorted by where its coordinates go.

    Attributes:
        d_vocab: number of tokens.
        n_positions: context length.
        contents: what must exist, prefixes before what continues them; the token and position embeddings come first.
        scores: head → the terms of its score.
        readouts: the terms of the logits.
    """

    d_vocab: int
    n_positions: int
    contents: list[Content] = field(default_factory=lambda: [Content("tok", Path()), Content("pos", Path())])
    scores: dict[Head, list[Term]] = field(default_factory=dict)
    readouts: list[Readout] = field(default_factory=list)

    def size(self, content: Content) -> int:
        """Number of tokens or positions."""
        return self.d_vocab if content.source == "tok" else self.n_positions

    def copies(self, head: Head) -> list[tuple[Content, Content]]:
        """What a head copies: (read, written)."""
        return [
            (Content(content.source, Path(content.path.heads[:-1])), content)
            for content in self.contents
            if content.path.heads and content.path.heads[-1] == head
        ]

    @property
    def heads(self) -> set[Head]:
        """The heads that do anything."""
        return set(self.scores) | {head for content in self.contents for head in content.path.heads}


def draw_blueprint(task: Task, circuit: Mapping[str, float], *, n_layers: int, n_heads: int) -> Blueprint:
    """Sort a circuit's coordinates by where they go.

    Raises:
        CoordinateError: when an id does not parse, or names a head or relation that is not there.
    """
    plan = Blueprint(task.d_vocab, task.n_positions)
    for text, value in circuit.items():
        name = CoordinateId.parse(text)
        used = {*(head for path in name.paths for head in path.heads), *([name.head] if name.head else [])}
        for head in sorted(used):
            if head.layer >= n_layers or head.index >= n_heads:
                raise CoordinateError(f"{text!r} uses {head}, but there are {n_layers} layers of {n_heads} heads")
        source = "pos" if name.offset is not None else "tok"
        matrix = value * _relation(task.relations, name, task.n_positions)
        contents = [Content(source, path) for path in name.paths]
        _require(plan, contents)
        if name.head is None:
            plan.readouts.append(Readout(contents[0] if contents else None, matrix))
        else:
            query = None if name.query is None else contents[0]
            plan.scores.setdefault(name.head, []).append(Term(query, contents[-1], matrix))
    return plan


def _require(plan: Blueprint, contents: list[Content]) -> None:
    for content in contents:
        heads = content.path.heads
        for depth in range(len(heads) + 1):
            prefix = Content(content.source, Path(heads[:depth]))
            if prefix not in plan.contents:
                plan.contents.append(prefix)


def _relation(relations: TokenRelations, name: CoordinateId, n_positions: int) -> Float[Tensor, "from_ to"]:
    """The relation's 0/1 matrix; one row for a constant query or source."""
    constant = name.query is None if name.is_score else name.key is None
    if name.offset is not None:
        if constant or not name.is_score:
            raise CoordinateError(f"{name}: an offset relates two positions, so it needs a score and a query path")
        return shift_matrix(n_positions, name.offset).double()
    known = tuple(relations.classes) if constant else (*relations.matchings, *_class_pairs(relations))
    if name.relation not in known:
        raise CoordinateError(f"{name} has an unknown relation {name.relation!r}; {did_you_mean(name.relation, known)}")
    if not constant:
        return relations.matrix(name.relation).double()
    row = torch.zeros(1, relations.d_vocab, dtype=torch.float64)
    row[0, relations.classes[name.relation]] = 1
    return row


def _class_pairs(relations: TokenRelations) -> list[str]:
    return [f"{first}>{second}" for first in relations.classes for second in relations.classes]

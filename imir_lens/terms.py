"""What a set of coordinates adds to scores and logits, given the attention patterns.

With `a_p[i]` the content of path p at position i (a distribution over source positions), a head's score is

    s_ij = Σ_{u,v} a_u[i] ( Σ_R c_uvR R ) a_v[j]ᵀ  +  Σ_{v,b} c_vb (a_v[j] · 1_b)

with R the relation evaluated on the context's tokens (or the shift, for an offset). The contents of all paths at one
position form a single row of width n·P, so the sum over pairs of paths is one product with an (nP × nP) matrix for the
offsets, one (n × n) product per token relation, and a final product with the keys' contents. Nothing loops over pairs.

Positions outside the stream (rotary, ALiBi, shortformer) add `κ(i − j)` between the rows themselves.

The same code serves the surrogate, where patterns come from these scores, and ablation, where they come from a model.
There, in a model with norms, every read is multiplied by the actual 1/σ over its mean (`Contents.rescale`): queries by
row, keys and what heads move by column, the readout by query. Key biases have no query to scale, and positions outside
the stream are added after the norm.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from imir_lens.coordinates import CoordinateSpace
from imir_lens.errors import CoordinateError
from imir_lens.ids import Head
from imir_lens.tasks.base import Batch

# Contexts are taken in chunks whose contents stay below this many numbers (256 MB in float32).
_CHUNK_NUMBERS = 64_000_000


def contexts_in_chunks(batch: Batch, space: CoordinateSpace, *, n_paths: int) -> Iterator[Batch]:
    """Split a batch so that the contents of `n_paths` paths fit in memory."""
    size = max(1, _CHUNK_NUMBERS // (max(n_paths, 1) * space.n_positions**2))
    return (batch[start : start + size] for start in range(0, len(batch), size))


@dataclass(frozen=True)
class ContextRelations:
    """The token relations evaluated on a batch of contexts.

    Attributes:
        tokens: the contexts.
        classes: indicator of each class (all of them, in order) at each position.
        matchings: for each matching, 1 where the token at j is the partner of the token at i.
        partners: for each matching, the partner of each position's token (−1: none).
    """

    tokens: Int[Tensor, "context position"]
    classes: Float[Tensor, "context position class"]
    matchings: tuple[Float[Tensor, "context position position"], ...]
    partners: tuple[Int[Tensor, "context position"], ...]

    @classmethod
    def evaluate(
        cls, space: CoordinateSpace, tokens: Int[Tensor, "context position"], *, dtype: torch.dtype
    ) -> "ContextRelations":
        """Evaluate a space's relations on contexts, as numbers of the coordinates' dtype.

        Raises:
            CoordinateError: when the contexts do not have the space's length.
        """
        if tokens.shape[1] != space.n_positions:
            raise CoordinateError(
                f"contexts of {tokens.shape[1]} positions, but these coordinates are for {space.n_positions}: "
                "take contexts of the task they were projected for"
            )
        relations, device = space.relations, tokens.device
        class_of = relations.class_of().to(device)[tokens]
        partners = tuple(partner.to(device)[tokens] for partner in relations.matchings.values())
        return cls(
            tokens,
            torch.nn.functional.one_hot(class_of, len(relations.classes)).to(dtype),
            tuple((partner.unsqueeze(2) == tokens.unsqueeze(1)).to(dtype) for partner in partners),
            partners,
        )


@dataclass(frozen=True)
class Reads:
    """Which paths a set of coordinates reads: the places that any nonzero coordinate touches.

    Attributes:
        queries, keys: per head, places of the paths read on either side.
        readout: places of the paths read at the readout.
        needed: all of these with their prefixes: the contents that must be computed.
    """

    queries: dict[Head, list[int]]
    keys: dict[Head, list[int]]
    readout: list[int]
    needed: frozenset[int]

    @classmethod
    def of(cls, space: CoordinateSpace, chosen: Bool[Tensor, " coordinate"]) -> "Reads":
        """Find the reads of the chosen coordinates."""
        queries, keys, wanted = {}, {}, {0}
        for head in space.paths.heads:
            score = space.block("score", head).view(chosen)
            bias = space.block("score_bias", head).view(chosen)
            queries[head] = score.any(2).any(1).nonzero().squeeze(1).tolist()
            keys[head] = (score.any(2).any(0) | bias.any(1)).nonzero().squeeze(1).tolist()
            wanted.update(queries[head], keys[head])
        readout = space.block("readout").view(chosen).any(1).nonzero().squeeze(1).tolist()
        wanted.update(readout)
        prefixes = {
            space.paths.index[type(path)(path.heads[:depth])]
            for path in (space.paths.paths[place] for place in wanted)
            for depth in range(len(path.heads) + 1)
        }
        return cls(queries, keys, readout, frozenset(prefixes))


class Contents:
    """The contents of paths, filled in layer by layer as patterns become known.

    Each is `[context, position, source]`, or `[context, query, source]` for paths through a layer that was run at the
    query rows only.
    """

    def __init__(self, space: CoordinateSpace, reads: Reads, n_contexts: int, like: Float[Tensor, "..."]) -> None:
        eye = torch.eye(space.n_positions, dtype=like.dtype, device=like.device)
        self.space = space
        self.reads = reads
        self.by_place: dict[int, Tensor] = {0: eye.expand(n_contexts, -1, -1)}
        self.query_factors: dict[int, Tensor] = {}
        self.key_factors: dict[int, Tensor] = {}
        self.readout_factor: Tensor | None = None
        self._at_queries: set[int] = set()

    def rescale(self, layer: int, inverse: Float[Tensor, "context position"]) -> None:
        """Take a layer's reads at the actual scales of a run, not at their means.

        Args:
            layer: the layer.
            inverse: 1/σ of the norm before its attention.
        """
        if self.space.scales is not None:
            inverse = inverse.to(self.by_place[0].dtype)
            self.query_factors[layer] = inverse / self.space.scales.query[layer]
            self.key_factors[layer] = inverse / self.space.scales.key[layer]

    def rescale_readout(self, inverse: Float[Tensor, "context query"]) -> None:
        """Take the readout at the actual scale of a run: 1/σ of the last norm at the queries."""
        if self.space.scales is not None:
            self.readout_factor = inverse.to(self.by_place[0].dtype) / self.space.scales.readout

    def needs(self, head: Head) -> bool:
        """Whether any path read later passes through this head."""
        return any(place in self.reads.needed for _, place in self.space.paths.extensions(head))

    def extend(self, head: Head, pattern: Float[Tensor, "context row position"], *, queries_only: bool = False) -> None:
        """Continue every needed path through a head: `A_{p·h} = A_h A_p`.

        With `queries_only` the pattern's rows are the queries' (the last layer, where no other row is read).
        """
        pattern = pattern.to(self.by_place[0].dtype)  # a model may run in half precision
        if head.layer in self.key_factors:
            pattern = pattern * self.key_factors[head.layer].unsqueeze(1)
        for before, place in self.space.paths.extensions(head):
            if place in self.reads.needed:
                self.by_place[place] = pattern if before == 0 else pattern @ self.by_place[before]
                if queries_only:
                    self._at_queries.add(place)

    def stack(
        self, places: list[int], rows: Int[Tensor, "context row"] | None = None
    ) -> Float[Tensor, "context row path source"]:
        """Contents of some paths side by side, at all positions or at the given (query) rows."""
        parts = []
        for place in places:
            content = self.by_place[place]
            if rows is not None and place not in self._at_queries:
                content = content.gather(1, rows.unsqueeze(2).expand(-1, -1, content.shape[2]))
            parts.append(content)
        return torch.stack(parts, dim=2)


def score_terms(
    contents: Contents,
    context: ContextRelations,
    values: Float[Tensor, " coordinate"],
    head: Head,
    rows: Int[Tensor, "context row"] | None = None,
) -> Float[Tensor, "context row position"] | None:
    """Sum of a head's score coordinates on a batch; None when it has none (a constant, hence zero, score)."""
    space, reads = contents.space, contents.reads
    queries, keys = reads.queries[head], reads.keys[head]
    if not keys:
        return None
    n_tokens, n_matchings, n_positions = len(space.relations.names), len(context.matchings), space.n_positions
    key_content = contents.stack(keys)  # [context, position, v, source]
    n_contexts = len(key_content)
    bias = space.block("score_bias", head).view(values)[keys]  # [v, free class]
    free = [list(space.relations.classes).index(name) for name in space.relations.free_classes]
    free_at = context.classes[..., free]  # [context, source, free class]
    # What each query row asks of source position m through key path v, [context, row, v, source]; the key bias asks the
    # same at every row.
    asked_by_all = torch.einsum("vb,cmb->cvm", bias, free_at).unsqueeze(1)
    asked = torch.zeros_like(asked_by_all)
    if queries:
        query_content = contents.stack(queries, rows)  # [context, row, u, source]
        n_rows = query_content.shape[1]
        block = space.block("score", head).view(values)[queries][:, keys]  # [u, v, relation]
        for index, matching in enumerate(context.matchings):
            mixed = torch.einsum("criu,uv->crvi", query_content.transpose(2, 3), block[:, :, index])
            related = mixed.reshape(n_contexts, -1, n_positions) @ matching
            asked = asked + related.view(n_contexts, n_rows, len(keys), n_positions)
        if free:
            contrasts = block[:, :, n_matchings:n_tokens].reshape(len(queries), len(keys), -1, len(free))
            query_class = query_content @ context.classes.unsqueeze(1)  # [context, row, u, class]
            asked = asked + torch.einsum("crua,uvab,cmb->crvm", query_class, contrasts, free_at)
        offsets = block[:, :, n_tokens:]
        if space.form.moves_positions and (bool((offsets != 0).any()) or offsets.requires_grad):
            shift = _shift(n_positions, values.device)
            toeplitz = offsets[:, :, shift].permute(0, 2, 1, 3).reshape(len(queries) * n_positions, -1)
            asked = asked + (query_content.reshape(n_contexts, n_rows, -1) @ toeplitz).view(
                n_contexts, n_rows, len(keys), n_positions
            )
    if head.layer in contents.query_factors:
        factor = contents.query_factors[head.layer]
        asked = asked * (factor if rows is None else factor.gather(1, rows))[:, :, None, None]
    asked = asked + asked_by_all
    flat = asked.reshape(n_contexts, asked.shape[1], -1)
    score = flat @ key_content.reshape(n_contexts, n_positions, -1).transpose(1, 2)
    if head.layer in contents.key_factors:
        score = score * contents.key_factors[head.layer].unsqueeze(1)
    n_rows = n_positions if rows is None else rows.shape[1]
    score = score.expand(-1, n_rows, -1)
    if space.form.moves_positions:
        return score
    kernel = position_terms(space, values, head)
    return score + (kernel if rows is None else kernel[rows])


def position_terms(
    space: CoordinateSpace, values: Float[Tensor, " coordinate"], head: Head
) -> Float[Tensor, "query key"]:
    """Return what a head's directly read offsets add between rows: `κ(i − j)`."""
    kernel = space.block("score", head).view(values)[0, 0, len(space.relations.names) :]
    return kernel[_shift(space.n_positions, values.device)]


def _shift(n_positions: int, device: torch.device) -> Int[Tensor, "query key"]:
    """Return the place of each pair's offset among −(P−1) … P−1."""
    steps = torch.arange(n_positions, device=device)
    return steps.unsqueeze(1) - steps + n_positions - 1


def readout_terms(
    contents: Contents,
    context: ContextRelations,
    values: Float[Tensor, " coordinate"],
    rows: Int[Tensor, "context query"],
) -> Float[Tensor, "context query vocab"]:
    """Sum of the readout coordinates at the query rows: `Σ_p Σ_R c_pR (a_p X R)`, plus the output's class constants."""
    space = contents.space
    relations = space.relations
    n_contexts, n_queries = rows.shape
    logits = values.new_zeros(n_contexts, n_queries, relations.d_vocab)
    names = list(relations.classes)
    output_class = (
        torch.stack(
            [
                (relations.class_of().to(values.device) == names.index(name)).to(values.dtype)
                for name in relations.free_classes
            ]
        )
        if relations.free_classes
        else values.new_zeros(0, relations.d_vocab)
    )  # [free class, vocab]
    constants = space.block("readout_bias").view(values) @ output_class
    places = contents.reads.readout
    if not places:
        return logits + constants
    content = contents.stack(places, rows)  # [context, query, p, source]
    block = space.block("readout").view(values)[places]  # [p, relation]
    for index, partner in enumerate(context.partners):
        weight = torch.einsum("cqps,p->cqs", content, block[:, index])
        found = (partner >= 0).unsqueeze(1)
        target = partner.clamp(min=0).unsqueeze(1).expand(-1, n_queries, -1)
        logits = logits.scatter_add(2, target, torch.where(found, weight, 0.0))
    if relations.free_classes:
        contrasts = block[:, len(context.partners) :].reshape(len(places), len(names), -1)
        source_class = content @ context.classes.unsqueeze(1)  # [context, query, p, class]
        logits = logits + torch.einsum("cqpa,pab->cqb", source_class, contrasts) @ output_class
    if contents.readout_factor is not None:
        logits = logits * contents.readout_factor.unsqueeze(2)
    return logits + constants

"""Many surrogates over one space as one tensor program: values `[run, coordinate]` in, logits of every run out.

The formulas are those of `terms`; the layout is for few coordinates and many runs. Every tensor is
`[run, context, row, source]`, with size 1 on an axis it does not depend on: a first-layer pattern made of offsets is
one matrix for each run, whatever the contexts, and relations between tokens are the same for all runs that share
contexts. A product of two such tensors is one matrix product over the axes they do have, and a coordinate multiplies
the smaller factor. Only the last layer's query rows are computed.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, partial

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from imir_lens.coordinates import CoordinateSpace
from imir_lens.dynamics.run_batch import RunBatch
from imir_lens.dynamics.surrogate_plan import SurrogatePlan, offset_basis
from imir_lens.errors import CoordinateError
from imir_lens.ids import Head
from imir_lens.paths import PathTable
from imir_lens.tasks.base import Batch


class BatchedSurrogate:
    """Surrogates of many runs, restricted to some coordinates.

    Args:
        space: which coordinates there are.
        chosen: those that may be other than zero; all others are zero in every run. Default: all active ones.

    Raises:
        CoordinateError: when the mask has another size, or chooses a coordinate that cannot act.
    """

    def __init__(self, space: CoordinateSpace, chosen: Bool[Tensor, " coordinate"] | None = None) -> None:
        self.space = space
        self.plan = SurrogatePlan.of(space, space.active if chosen is None else chosen)
        n_layers, paths, needed = space.paths.n_layers, space.paths, self.plan.reads.needed
        # layer → its heads that are read, each with (place of q, place of q·head) of the paths that are
        self.extended = [
            {head: pairs for head in paths.heads if head.layer == layer and (pairs := _needed(paths, head, needed))}
            for layer in range(n_layers)
        ]
        self.partners = list(space.relations.matchings.values())
        self.total = [bool((partner >= 0).all()) for partner in self.partners]
        self._kept: dict[object, Tensor] = {}

    @property
    def places(self) -> Int[Tensor, " chosen"]:
        """Places of the chosen coordinates in the flat vector."""
        return self.plan.places

    def logits(
        self, values: Float[Tensor, "run coordinate"], batch: Batch | Sequence[Batch] | RunBatch
    ) -> Float[Tensor, "run context query vocab"]:
        """Run every surrogate.

        Args:
            values: one flat vector of coordinates a run; those not chosen are taken as zero. Gradients flow to them.
            batch: contexts for all runs, or one batch for each.

        Returns:
            logits at the queries, up to a constant over the vocabulary.

        Raises:
            CoordinateError: when the values or contexts do not fit the space.
            OptionError: when the batches of the runs differ in shape.
        """
        if values.ndim != 2 or values.shape[1] != self.space.size:
            raise CoordinateError(f"expected values [run, {self.space.size}] here, found shape {tuple(values.shape)}")
        return self.logits_of_chosen(values[:, self.places.to(values.device)], RunBatch.of(batch))

    def logits_of_chosen(
        self, values: Float[Tensor, "run chosen"], batch: RunBatch
    ) -> Float[Tensor, "run context query vocab"]:
        """Run every surrogate on the values of the chosen coordinates alone, in the order of `places`.

        Raises:
            CoordinateError: when the contexts do not fit the space, or there is one batch too many or too few.
        """
        if batch.tokens.shape[2] != self.space.n_positions:
            raise CoordinateError(
                f"contexts of {batch.tokens.shape[2]} positions, but these coordinates are for "
                f"{self.space.n_positions}: take contexts of the task they were projected for"
            )
        if batch.n_runs not in (1, len(values)):
            raise CoordinateError(f"expected one batch, or one for each of {len(values)} runs: found {batch.n_runs}")
        return _Run(self, values, batch).logits()

    def kept(self, name: object, like: Shaped[Tensor, "..."], make: Callable[[], Tensor]) -> Shaped[Tensor, "..."]:
        """Return a constant, made at the first step and kept for the others; floats get the type of `like`."""
        found = self._kept.get(name)
        floats = found is not None and found.is_floating_point()
        if found is None or found.device != like.device or (floats and found.dtype != like.dtype):
            found = make().to(like.device)
            found = self._kept[name] = found.to(like.dtype) if found.is_floating_point() else found
        return found


def _needed(paths: PathTable, head: Head, needed: frozenset[int]) -> list[tuple[int, int]]:
    return [pair for pair in paths.extensions(head) if pair[1] in needed]


class _Run:
    """One forward pass."""

    def __init__(self, owner: BatchedSurrogate, values: Tensor, batch: RunBatch) -> None:
        self.owner, self.space, self.plan, self.batch = owner, owner.space, owner.plan, batch
        self.like = values
        self.parts = self.plan.split(values)
        self.contents: dict[int, Tensor] = {}  # place → [run, context, row, source]; the empty path is the identity
        self.at_queries: set[int] = set()

    def logits(self) -> Float[Tensor, "run context query vocab"]:
        space = self.space
        for layer, heads in enumerate(self.owner.extended):
            last = layer == space.paths.n_layers - 1
            hidden = self._constant(("hidden", layer), partial(space.form.hidden, layer, space.n_positions))
            hidden = self._rows(hidden[None, None]) if last else hidden[None, None]
            patterns = {head: self._pattern(self._score(head, last=last), hidden) for head in heads}
            for head, pairs in heads.items():
                for before, place in pairs:
                    pattern = patterns[head]
                    self.contents[place] = pattern if before == 0 else _product(pattern, self.contents[before])
                    if last:
                        self.at_queries.add(place)
        return self._readout()

    def _pattern(self, score: Tensor | None, hidden: Tensor) -> Tensor:
        score = self.like.new_zeros(hidden.shape) if score is None else score
        return score.masked_fill(hidden, -torch.inf).softmax(-1)

    def _constant(self, name: object, make: Callable[[], Tensor]) -> Tensor:
        return self.owner.kept(name, self.like, make)

    def _score(self, head: Head, *, last: bool) -> Tensor | None:
        """Sum of the head's terms: matchings `A_u S (Σ_v c A_v)ᵀ`, all else `(Σ_u A_u Y_uv) A_vᵀ`."""
        score: Tensor | None = None
        keys: dict[tuple[int, int], Tensor] = {}  # (u, matching) → Σ_v c A_v over v ≠ res
        asked: dict[int, Tensor] = {}  # v → Σ_u A_u Y_uv
        for index in self.plan.by_head.get(head, []):
            section, part = self.plan.sections[index], self.parts[index]
            u, v = section.u, section.v
            if section.kind == "matching":
                for (matching,), value in zip(section.which, part.unbind(1), strict=True):
                    value = value[:, None, None, None]
                    if v == 0:
                        score = _add(score, value * self._related(u, matching, last=last))
                    else:
                        keys[u, matching] = _add(keys.get((u, matching)), value * self.contents[v])
                continue
            if section.kind == "bias":
                term = self._of_classes(part, [which for (which,) in section.which]).unsqueeze(2)
            elif section.kind == "contrast":
                classes = part.new_zeros(len(part), len(self.space.relations.classes), len(self._free))
                a, b = zip(*section.which, strict=True)
                classes[:, list(a), list(b)] = part
                query = self._query_classes(u, last=last)
                term = _product(_product(query, classes.unsqueeze(1)), self._classes[..., self._free].transpose(2, 3))
            else:
                offsets = tuple(k for (k,) in section.which)
                basis = self._constant(offsets, partial(offset_basis, offsets, self.space.n_positions))
                direct = u == 0 and last and self.batch.fixed_queries is not None
                basis = basis[:, self.batch.fixed_queries] if direct else basis
                shifts = (part @ basis.flatten(1)).view(len(part), 1, *basis.shape[1:])
                if u == 0:
                    term = shifts if direct or not last else self._rows(shifts)
                else:
                    term = _product(self._content(u, last=last), shifts)
            if section.kind == "offset" and not self.space.form.moves_positions:
                score = _add(score, term)
            else:
                asked[v] = _add(asked.get(v), term)
        for v, term in asked.items():
            score = _add(score, term if v == 0 else _product(term, self.contents[v], transposed=True))
        for (u, matching), key in keys.items():
            score = _add(score, _product(self._related(u, matching, last=last), key, transposed=True))
        return score

    def _readout(self) -> Tensor:
        """Sum of the readout's terms: `Σ_p Σ_R c_pR (a_p X R)`, plus the output's class constants."""
        tokens, relations = self.batch.tokens, self.space.relations
        shape = (len(self.like), *self.batch.queries.shape[1:], relations.d_vocab)
        logits = self.like.new_zeros(shape)
        weights: dict[int, Tensor] = {}
        for index in self.plan.by_head.get(None, []):
            section, part = self.plan.sections[index], self.parts[index]
            if section.kind == "matching":
                for (matching,), value in zip(section.which, part.unbind(1), strict=True):
                    value = value[:, None, None, None]
                    if section.v == 0:
                        own = tokens.gather(2, self.batch.queries)
                        logits = self._scatter(logits, matching, own.unsqueeze(3), value)
                    else:
                        content = self._content(section.v, last=True)
                        weights[matching] = _add(weights.get(matching), value * content)
            elif section.kind == "contrast":
                classes = part.new_zeros(len(part), len(relations.classes), len(self._free))
                a, b = zip(*section.which, strict=True)
                classes[:, list(a), list(b)] = part
                found = _product(self._query_classes(section.v, last=True), classes.unsqueeze(1))
                logits = logits + _product(found, self._output_classes[self._free][None, None])
            else:
                bias = part @ self._output_classes[[self._free[which] for (which,) in section.which]]
                logits = logits + bias[:, None, None]
        for matching, weight in weights.items():
            logits = self._scatter(logits, matching, tokens.unsqueeze(2), weight)
        return logits

    def _scatter(self, logits: Tensor, matching: int, tokens: Tensor, weight: Tensor) -> Tensor:
        """Add weights `[run, context, query, source]` to the logits of the sources' partners."""
        partner = self._partner(matching)[tokens]
        sizes = zip(weight.shape, partner.shape, (*logits.shape[:3], 1), strict=True)
        shape = [max(three) for three in sizes]
        if not self.owner.total[matching]:
            weight, partner = weight * (partner >= 0), partner.clamp(min=0)
        return logits.scatter_add(3, partner.expand(shape), weight.expand(shape))

    def _partner(self, matching: int) -> Int[Tensor, " vocab"]:
        return self._constant(("partner", matching), lambda: self.owner.partners[matching])

    def _content(self, place: int, *, last: bool) -> Tensor:
        """Content of a path other than the empty one, at all positions or (last layer) at the queries."""
        content = self.contents[place]
        return self._rows(content) if last and place not in self.at_queries else content

    def _rows(self, content: Tensor) -> Tensor:
        """Keep the rows of the queries."""
        if self.batch.fixed_queries is not None:
            return content[:, :, self.batch.fixed_queries]
        queries = self.batch.queries
        runs, contexts = max(len(content), len(queries)), queries.shape[1]
        index = queries.unsqueeze(3).expand(runs, -1, -1, content.shape[3])
        return content.expand(runs, contexts, -1, -1).gather(2, index)

    def _related(self, u: int, matching: int, *, last: bool) -> Tensor:
        """`A_u S`, with S 1 where the token of the key is the partner of the query's."""
        tokens = self.batch.tokens
        partner = self._partner(matching)[tokens]
        rows = partner.gather(2, self.batch.queries) if u == 0 and last else partner
        related = (rows.unsqueeze(3) == tokens.unsqueeze(2)).to(self.like.dtype)
        return related if u == 0 else _product(self._content(u, last=last), related)

    @cached_property
    def _free(self) -> list[int]:
        relations = self.space.relations
        return [list(relations.classes).index(name) for name in relations.free_classes]

    @cached_property
    def _output_classes(self) -> Float[Tensor, "class vocab"]:
        relations = self.space.relations
        one_hot = torch.nn.functional.one_hot
        return self._constant("classes", lambda: one_hot(relations.class_of(), len(relations.classes)).T.float())

    @cached_property
    def _classes(self) -> Float[Tensor, "run context position class"]:
        return self._output_classes.T[self.batch.tokens]

    def _of_classes(self, part: Tensor, which: list[int]) -> Float[Tensor, "run context position"]:
        """Sum of class constants at every position."""
        constants = part @ self._output_classes[[self._free[place] for place in which]]  # [run, vocab]
        if self.batch.n_runs == 1:
            return constants[:, self.batch.tokens[0]]
        shape = self.batch.tokens.shape
        return constants.gather(1, self.batch.tokens.flatten(1)).view(shape)

    def _query_classes(self, u: int, *, last: bool) -> Tensor:
        """Class of what a path holds, at all positions or at the queries."""
        if u == 0:
            return self._rows(self._classes) if last else self._classes
        return _product(self._content(u, last=last), self._classes)


def _add(total: Tensor | None, term: Tensor) -> Tensor:
    return term if total is None else total + term


def _product(left: Tensor, right: Tensor, *, transposed: bool = False) -> Tensor:
    """`left @ right` (or `left @ rightᵀ`) over `[run, context, ·, ·]`, as one product over the axes that are not 1.

    `torch.matmul` would copy a factor along the axes it lacks.
    """
    axes, factors = [], []
    for factor, names in ((left, "im"), (right, "jm" if transposed else "mj")):
        kept = "".join(name for name, size in zip("rc", factor.shape, strict=False) if size > 1)
        axes.append(kept + names)
        factors.append(factor.reshape([size for size in factor.shape[:2] if size > 1] + list(factor.shape[2:])))
    shared = "".join(name for name in "rc" if any(name in a for a in axes))
    found = torch.einsum(f"{axes[0]},{axes[1]}->{shared}ij", *factors)
    runs, contexts = max(len(left), len(right)), max(left.shape[1], right.shape[1])
    return found.reshape(runs, contexts, *found.shape[-2:])

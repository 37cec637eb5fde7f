"""The surrogate: the model made of its coordinates alone.

It never touches d_model: scores are sums of coordinates times relations, patterns their softmax, contents the products
of patterns, logits again sums of coordinates. A norm's 1/σ and a soft cap's slope are their means over contexts. It is
differentiable in the coordinates, and its cost falls with the number of coordinates that are not zero.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from imir_lens.coordinates import CoordinateSpace
from imir_lens.ids import Head
from imir_lens.tasks.base import Batch
from imir_lens.terms import Contents, ContextRelations, Reads, contexts_in_chunks, readout_terms, score_terms


class Surrogate:
    """The model made of coordinates, for one space.

    Args:
        space: which coordinates there are.
    """

    def __init__(self, space: CoordinateSpace) -> None:
        self.space = space

    def logits(
        self,
        values: Float[Tensor, " coordinate"],
        batch: Batch,
        *,
        reads: Reads | None = None,
    ) -> Float[Tensor, "context query vocab"]:
        """Run the surrogate.

        Args:
            values: coordinates, flat. Gradients flow to them.
            batch: contexts of the space's length.
            reads: which paths to follow; default, those read by nonzero coordinates. For gradients with respect to
                coordinates that are zero, pass `Reads.of(space, space.active)`.

        Returns:
            logits at the queries, up to a constant over the vocabulary.
        """
        reads = reads or Reads.of(self.space, values.detach() != 0)
        return torch.cat(
            [
                self._run(values, part, reads)[0]
                for part in contexts_in_chunks(batch, self.space, n_paths=len(reads.needed))
            ]
        )

    def patterns(
        self, values: Float[Tensor, " coordinate"], batch: Batch, *, chosen: Bool[Tensor, " coordinate"] | None = None
    ) -> dict[Head, Float[Tensor, "context position position"]]:
        """Return the attention patterns of every head (last layer: at all positions too)."""
        reads = Reads.of(self.space, values.detach() != 0 if chosen is None else chosen)
        found: dict[Head, list[Tensor]] = {head: [] for head in self.space.paths.heads}
        for part in contexts_in_chunks(batch, self.space, n_paths=len(reads.needed)):
            for head, pattern in self._run(values, part, reads, all_rows=True)[1].items():
                found[head].append(pattern)
        return {head: torch.cat(parts) for head, parts in found.items()}

    def _run(
        self, values: Tensor, batch: Batch, reads: Reads, *, all_rows: bool = False
    ) -> tuple[Float[Tensor, "context query vocab"], dict[Head, Float[Tensor, "context row source"]]]:
        space = self.space
        context = ContextRelations.evaluate(space, batch.tokens, dtype=values.dtype)
        contents = Contents(space, reads, len(batch), values)
        n_positions = space.n_positions
        patterns = {}
        for layer in range(space.paths.n_layers):
            last = layer == space.paths.n_layers - 1 and not all_rows
            # After the last layer only the queries' rows are read.
            rows = batch.queries if last else None
            hidden = space.form.hidden(layer, n_positions, device=values.device)
            hidden_rows = hidden[batch.queries] if last else hidden
            new = {}
            for head in space.paths.heads:
                if head.layer != layer or not (all_rows or contents.needs(head)):
                    continue
                score = score_terms(contents, context, values, head, rows)
                if score is None:
                    score = values.new_zeros(len(batch), hidden_rows.shape[-2], n_positions)
                new[head] = score.masked_fill(hidden_rows, -torch.inf).softmax(-1)
            for head, pattern in new.items():
                contents.extend(head, pattern, queries_only=last)
            patterns.update(new)
        return readout_terms(contents, context, values, batch.queries), patterns

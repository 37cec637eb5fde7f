"""Running a model with any of its edges cut: the reader gets the writer's output from the corrupted run instead.

The model is attention-only without norms, so that a reader's input is the sum of what the writers wrote, and
`x_v = x − Σ_u (1 − kept_uv) (out_u − corrupt_u)` is exact. `kept` may be fractional, and carries gradients.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.planted.contexts import Contexts
from benchmarks.planted.graph import EdgeGraph
from imir_lens.evaluation import at_queries
from imir_lens.weights import CircuitWeights

Written = Float[Tensor, "context position writer d_model"]


class EdgePatcher:
    """One model on one set of contexts.

    Attributes:
        forwards: forward passes run so far, the two that are cached included.
    """

    def __init__(self, weights: CircuitWeights, graph: EdgeGraph, contexts: Contexts) -> None:
        self.weights, self.graph, self.contexts = weights, graph, contexts
        self.forwards = 0
        n_positions = contexts.corrupt.shape[1]
        self._future = torch.ones(n_positions, n_positions, dtype=torch.bool).triu(1)
        self._positions = weights.W_pos[:n_positions]
        self.everything = torch.ones(len(graph.edges))
        with torch.no_grad():
            _, self.corrupt = self.run(self.everything, weights.W_E[contexts.corrupt])
            self.clean_logits, self.clean = self.run(self.everything, weights.W_E[contexts.clean.tokens])

    def run(
        self,
        kept: Float[Tensor, " edge"],
        tokens: Float[Tensor, "context position d_model"] | None = None,
        *,
        start: int = 0,
        difference: Written | None = None,
    ) -> tuple[Float[Tensor, "context query vocab"], Written]:
        """Run with some edges cut.

        Args:
            kept: 1 for an edge that stays, 0 for one that is cut.
            tokens: what the token embedding writes; default, the clean contexts'.
            start: first layer to run; below it everything must be as in the clean run.
            difference: what a cut takes away from the reader, by writer; default, this run's writing minus the
                corrupted run's.

        Returns:
            logits at the queries, and what each writer wrote.
        """
        self.forwards += 1
        weights, graph = self.weights, self.graph
        if start:
            written = [self.clean[:, :, : 1 + start * graph.n_heads]]
        else:
            written = [(weights.W_E[self.contexts.clean.tokens] if tokens is None else tokens).unsqueeze(2)]
        x = written[0].sum(2) + self._positions + weights.b_O[:start].sum(0)
        for layer in range(start, graph.n_layers):
            block = kept[graph.block(layer)].view(3, graph.n_heads, -1)
            inputs = self._read(x, written, block, difference)
            written.append(self._heads(layer, inputs))
            x = x + written[-1].sum(2) + weights.b_O[layer]
        block = kept[graph.block(graph.n_layers)].view(1, 1, -1)
        out = self._read(x, written, block, difference)[:, :, 0, 0]
        return at_queries(out @ weights.W_U + weights.b_U, self.contexts.clean), torch.cat(written, dim=2)

    def _read(
        self, x: Tensor, written: list[Tensor], kept: Float[Tensor, "slot head writer"], difference: Written | None
    ) -> Float[Tensor, "context position slot head d_model"]:
        """Return the inputs of all readers of a layer."""
        x = x[:, :, None, None]
        if not kept.requires_grad and bool((kept == 1).all()):
            return x.expand(-1, -1, *kept.shape[:2], -1)
        count = kept.shape[-1]
        if difference is None:
            difference = torch.cat(written, dim=2) - self.corrupt[:, :, :count]
        return x - torch.einsum("shw,cpwd->cpshd", 1 - kept, difference[:, :, :count])

    def _heads(
        self, layer: int, inputs: Float[Tensor, "context position slot head d_model"]
    ) -> Float[Tensor, "context position head d_model"]:
        w = self.weights
        q, k, v = (
            torch.einsum("cphm,hmd->chpd", inputs[:, :, slot], weight[layer]) + bias[layer].unsqueeze(1)
            for slot, (weight, bias) in enumerate(((w.W_Q, w.b_Q), (w.W_K, w.b_K), (w.W_V, w.b_V)))
        )
        scores = (q @ k.transpose(2, 3) / w.scale).masked_fill(self._future, -torch.inf)
        return torch.einsum("chpd,hdm->cphm", scores.softmax(-1) @ v, w.W_O[layer])

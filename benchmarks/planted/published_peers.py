"""EAP, integrated gradients over edges, and ACDC as the package `auto-circuit` has them, called unchanged.

    pip install -e '.[peers]'
    pip install --no-deps auto-circuit==1.0.1

It can be installed with all its requirements too, but those bring jax, and a fork of tqdm that overwrites tqdm.

The package works on a HookedTransformer with hooks on each head's inputs and result. It is handed an ImirTransformer
that also starts at a layer and takes residual streams, as ACDC asks, and that answers at the queries alone. Its "Resid
Start" is tokens and positions together; as all contexts have the same positions, their difference is the tokens'.

It has no EAP-IG. Its integrated gradients cut all edges at once by a share that grows from 0 to 1, where EAP-IG (Hanna
et al. 2024) moves the token embeddings.

What is measured is its own code, and the preparation of the model (copying weights, wrapping modules), which takes 5 to
20 milliseconds. A forward pass that starts at a layer counts as a whole one, as it does for our ACDC.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.planted.acdc import TAUS
from benchmarks.planted.contexts import Contexts
from benchmarks.planted.finding import GRADIENT_PASS, Case, Finding, from_edges
from benchmarks.planted.graph import SLOTS, Edge
from benchmarks.planted.published_import import AutoCircuit, import_auto_circuit, installed
from imir_lens.evaluation import at_queries
from imir_lens.ids import Head
from imir_lens.models.transformer import ImirTransformer

# Shares 0/5 … 5/5: the steps of our EAP-IG, and 0.
_STEPS = 5
# For an edge that no threshold cuts, which scores ∞ there: a number above all thresholds.
_NEVER_CUT = 1e3


def available() -> bool:
    """Whether the package is installed."""
    return installed()


def published_eap(case: Case) -> Finding:
    """EAP (Syed et al. 2023): the gradient of the logit difference by each edge's mask, in the clean run."""
    return _Prepared.of(case).by_gradient(mask_val=0.0)


def published_integrated_gradients(case: Case) -> Finding:
    """Integrated edge gradients: the mean of those gradients along the line from no edge cut to all."""
    return _Prepared.of(case).by_gradient(integrated_grad_samples=_STEPS)


def published_acdc(case: Case, taus: tuple[float, ...] = TAUS) -> Finding:
    """ACDC (Conmy et al. 2023); an edge scores as the smallest threshold that cuts it.

    Args:
        case: the model and its contexts.
        taus: thresholds.
    """
    prepared = _Prepared.of(case)
    scores = prepared.package.acdc(prepared.model, [prepared.batch], None, tao_exps=[0], tao_bases=list(taus))
    return prepared.finding(scores)


PUBLISHED = {
    "EAP (AutoCircuit)": published_eap,
    "integrated edge gradients (AutoCircuit)": published_integrated_gradients,
    "ACDC (AutoCircuit)": published_acdc,
}


class QueriedTransformer(ImirTransformer):
    """An attention-only model as the package runs one.

    Attributes:
        contexts: where the queries are.
        forwards: forward passes so far; one with gradients counts as three.
    """

    contexts: Contexts
    forwards = 0

    @classmethod
    def like(cls, model: ImirTransformer, contexts: Contexts) -> "QueriedTransformer":
        """Return a copy of a model for some contexts, with its weights frozen and the hooks on that it needs."""
        copy = cls(model.cfg)
        copy.load_state_dict(model.state_dict())
        copy.contexts = contexts
        copy.set_use_attn_result(True)
        copy.set_use_split_qkv_input(True)
        return copy.eval().requires_grad_(False)

    def forward(  # type: ignore[override]
        self, inputs: Tensor, start_at_layer: int | None = None, **_: Any
    ) -> Float[Tensor, "answer vocab"]:
        """Return the logits at all queries that count, from tokens or from the stream that a layer reads."""
        self.forwards += GRADIENT_PASS if torch.is_grad_enabled() else 1
        x = inputs if start_at_layer is not None else self.input_to_embed(inputs)[0]
        length = x.shape[1]
        for block in self.blocks[start_at_layer or 0 :]:
            x = block(x, self.future[:length, :length])
        clean = self.contexts.clean
        return at_queries(self.unembed(x), clean)[clean.mask]

    def input_to_embed(self, tokens: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Return the stream before the first layer, the tokens, and two things that there are none of here."""
        return self.embed(tokens) + self.pos_embed(tokens), tokens, None, None


@dataclass(frozen=True)
class _Prepared:
    """A case as the package takes it."""

    case: Case
    package: AutoCircuit
    inner: QueriedTransformer
    model: Any
    batch: Any

    @classmethod
    def of(cls, case: Case) -> "_Prepared":
        package = _package()
        inner = QueriedTransformer.like(case.planted.model, case.contexts)
        model = package.patchable_model(inner, factorized=True, separate_qkv=True)
        # It holds its edges as a set of texts, whose order differs from process to process, and ACDC tries them in
        # that order within a layer. They get the order of our ACDC: from the last reader and writer to the first.
        index = case.planted.graph.index
        model.edges = sorted(model.edges, key=lambda edge: index[_edge(edge)], reverse=True)
        contexts = case.contexts
        mask = contexts.clean.mask
        answers = (right[mask].unsqueeze(1) for right in (contexts.clean.targets, contexts.wrong))
        return cls(case, package, inner, model, package.batch(0, 0, contexts.clean.tokens, contexts.corrupt, *answers))

    def by_gradient(self, **options: Any) -> Finding:
        scores = self.package.mask_gradient(
            self.model, [self.batch], None, grad_function="logit", answer_function="avg_diff", **options
        )
        return self.finding(scores)

    def finding(self, theirs: dict[str, Tensor]) -> Finding:
        """Return it with its scores in the order of our graph, by size."""
        graph = self.case.planted.graph
        scores = torch.zeros(len(graph.edges))
        for edge in self.model.edges:
            scores[graph.index[_edge(edge)]] = edge.prune_score(theirs).abs()
        return from_edges(graph, scores.nan_to_num(posinf=_NEVER_CUT), self.inner.forwards)


@lru_cache(maxsize=1)
def _package() -> AutoCircuit:
    return import_auto_circuit(QueriedTransformer)


def _edge(edge: Any) -> Edge:
    """Return an edge of theirs as one of ours; layers and slots are in the names of modules."""
    source, reader = edge.src, edge.dest
    writer = None if source.head_idx is None else Head(_layer(source), source.head_idx)
    if reader.head_idx is None:
        return Edge(writer, None, "")
    slot = next(slot for slot in SLOTS if reader.module_name.endswith(f"hook_{slot}_input"))
    return Edge(writer, Head(_layer(reader), reader.head_idx), slot)


def _layer(node: Any) -> int:
    return int(node.module_name.split(".")[1])

"""Confinement: how much of a gradient lies outside the manifold's span, measured.

With Π the orthogonal projector on the span (of each merged matrix and of the readout) and G the gradient,

    residual = ‖G − Π G‖ / ‖G‖

It is zero, to rounding, when four things hold together: the mean is over all contexts and not a sample; the span holds
all orbits of the symmetry (`invariant_span`); the weights are in the span themselves; and embeddings and write spaces
respect the symmetry. Positions have a symmetry only on a ring, without a mask: a causal mask lets every position see
another number of keys, so that under it only relabelling of tokens remains, and every pair of positions is an orbit of
its own. On a ring with centred embeddings the orbits that tie a token class to positions vanish, as do those of all
positions alike, and the span is the paper's: token relations and all n cyclic shifts.

With a sample of B contexts the residual ends at a Monte-Carlo floor ∝ 1/√B.
"""

from dataclasses import dataclass
from math import sqrt

from torch import nn

from imir_lens.dynamics.exact_contexts import WeightedContexts
from imir_lens.dynamics.merged_gradient import merged_gradient
from imir_lens.dynamics.population_gradient import in_double, population_gradient
from imir_lens.dynamics.span import Span, merged_weights, stream_contents
from imir_lens.errors import OptionError, did_you_mean
from imir_lens.manifold import Energy
from imir_lens.models.disentangled import DisentangledTransformer
from imir_lens.tasks.base import Batch

KINDS = ("free", "induced")


@dataclass(frozen=True)
class Confinement:
    """What part of a gradient is outside a span.

    Attributes:
        energies: `L0H0` … and `readout` → squared norm on the span and off it.
        contexts: number of contexts the gradient is the mean over.
        left_out: share of the gradient's squared norm in parameters that are not projected at all; 0 for a disentangled
            transformer, which has no others.
    """

    energies: dict[str, Energy]
    contexts: int
    left_out: float = 0.0

    @property
    def total(self) -> Energy:
        """Energies of all matrices together."""
        parts = self.energies.values()
        return Energy(
            sum(part.on for part in parts),
            sum(part.off for part in parts),
            sum(part.dimension for part in parts),
            sum(part.entries for part in parts),
        )

    @property
    def residual(self) -> float:
        """Norm outside the span over the whole norm, of all matrices together; the largest matrix dominates it."""
        return _residual(self.total)

    @property
    def residuals(self) -> dict[str, float]:
        """The same of every matrix."""
        return {name: _residual(part) for name, part in self.energies.items()}


def _residual(energy: Energy) -> float:
    whole = energy.on + energy.off
    return sqrt(energy.off / whole) if whole > 0 else 0.0


def measure_confinement(
    model: nn.Module, contexts: WeightedContexts | Batch, span: Span, *, kind: str = "free"
) -> Confinement:
    """Measure the share of the gradient outside a span, in float64.

    Args:
        model: a `DisentangledTransformer`, or an ordinary attention-only model without norms and with learned
            positions. Of the latter, the gradient of the products W_Q W_Kᵀ is projected, on the span that its own
            embeddings and W_V W_O make; see `merged_gradient`.
        contexts: all of them, from `enumerate_contexts`, or a sample.
        span: what to project on.
        kind: for an ordinary model, the gradient as if the product were "free", or its change "induced" by a step on
            W_Q and W_K. A disentangled transformer has only the first.

    Raises:
        OptionError: for an unknown kind, or one that the model does not have.
        UnsupportedModelError: for a model of another form.
    """
    if kind not in KINDS:
        raise OptionError(f"unknown kind {kind!r} of gradient; {did_you_mean(kind, KINDS)}")
    weighted = WeightedContexts.sample_of(contexts) if isinstance(contexts, Batch) else contexts
    if isinstance(model, DisentangledTransformer):
        if kind != "free":
            raise OptionError("a disentangled transformer's W_KQ is a parameter: expected kind='free'")
        double = in_double(model)
        gradient = merged_weights(double, population_gradient(double, weighted))
        energies, _ = span.project(stream_contents(double), gradient, model.cfg.n_heads)
        return Confinement(energies, len(weighted))
    merged = merged_gradient(model, weighted)
    gradient = merged.free if kind == "free" else merged.induced
    energies, _ = span.project(stream_contents(merged.weights), gradient, merged.weights.n_heads)
    return Confinement(energies, len(weighted), merged.left_out)

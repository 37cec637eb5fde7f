"""Readout: what a head that attends to a token does to that token's own logit, and to that of its associate."""

from jaxtyping import Float
from torch import Tensor

from imir_lens.atlas.moments import Moments
from imir_lens.atlas.statistics import Contrast, contrast
from imir_lens.weights import CircuitWeights


def layer_readout(weights: CircuitWeights, moments: Moments, layer: int) -> tuple[Contrast, Contrast | None]:
    """Return the contrasts of `x OV W_U` for one layer's heads: copying (`same`), and a relation's pairs (`assoc`).

    Only the direct path to the logits counts: a head that acts through later layers does not show here.
    """
    source = moments.source(layer)
    W_V, W_O = weights.W_V[layer], weights.W_O[layer]
    values = W_V.mT @ moments.covariances[source, source] @ W_V
    answers = W_O @ moments.unembedding @ W_O.mT
    copying = contrast(W_V.mT @ moments.readout[source] @ W_O.mT, values, answers)
    if moments.assoc is None:
        return copying, None
    marked: Float[Tensor, "head d_head d_head"] = W_V.mT @ moments.assoc[source].to(W_V) @ W_O.mT
    return copying, contrast(marked, values, answers)

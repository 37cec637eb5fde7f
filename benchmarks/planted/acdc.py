"""ACDC: our implementation of "Towards automated circuit discovery for mechanistic interpretability".

From the logits downwards (Conmy et al. 2023), each edge is cut in turn; it stays cut when that raises the KL divergence
from the whole model's answers by less than τ. One τ gives a circuit and no ranking, so it is run at several, and an
edge scores as the largest τ that keeps it (their ROC curves are drawn so). Since lower layers are still whole when an
edge into a higher one is tried, every trial starts at the reader's layer.
"""

import torch

from benchmarks.planted.finding import Case, Finding, from_edges
from benchmarks.planted.patching import EdgePatcher

TAUS = (0.01, 0.1, 1.0)


@torch.no_grad()
def acdc(case: Case) -> Finding:
    """ACDC at three thresholds."""
    graph = case.planted.graph
    patcher = EdgePatcher(case.lens.weights, graph, case.contexts)
    mask = case.contexts.clean.mask
    clean = patcher.clean_logits.log_softmax(-1)
    scores = torch.zeros(len(graph.edges))
    for tau in TAUS:
        kept = patcher.everything.clone()
        now = 0.0
        for layer in range(graph.n_layers, -1, -1):
            block = graph.block(layer)
            # Within a layer from the last reader to the first, and from late writers to early ones.
            for place in range(block.stop - 1, block.start - 1, -1):
                kept[place] = 0
                logits, _ = patcher.run(kept, start=layer)
                divergence = float((clean.exp() * (clean - logits.log_softmax(-1))).sum(-1)[mask].mean())
                if divergence - now < tau:
                    now = divergence
                else:
                    kept[place] = 1
        scores = torch.where(kept > 0, tau, scores)
    return from_edges(graph, scores, patcher.forwards)

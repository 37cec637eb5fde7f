"""EAP as TransformerLens has it: `transformer_lens.tools.analysis.attribution_patching.attribution_patch`.

It asks for a bridge with hooks on every head's query, key and value input. The native bridge of TransformerLens 4.3
refuses those, and `ImirTransformer` has them under HookedTransformer's names; so it is handed an ImirTransformer that
also answers to the bridge's names, with an MLP of zeros where the function insists on one. The function takes its
gradient in the corrupted run, and one context at a time, so it is given the first 16 contexts only.
"""

import importlib
from dataclasses import replace
from typing import Any

import torch

from benchmarks.planted.finding import GRADIENT_PASS, Case, Finding, from_edges
from benchmarks.planted.graph import Edge
from imir_lens.ids import Head
from imir_lens.models.transformer import ImirTransformer

_CONTEXTS = 16
_MODULE = "transformer_lens.tools.analysis.attribution_patching"


def available() -> bool:
    """Whether the installed TransformerLens scores edges."""
    try:
        module = importlib.import_module(_MODULE)
    except ImportError:
        return False
    return hasattr(module, "enumerate_edges")


def transformer_lens_eap(case: Case) -> Finding:
    """Run it on contexts and their partners; an edge scores as the |sum| over positions of its mean scores."""
    tool = importlib.import_module(_MODULE)
    graph, contexts = case.planted.graph, case.contexts
    model = as_bridge(case.planted.model)
    totals = torch.zeros(len(graph.edges))
    count = min(_CONTEXTS, len(contexts.clean))
    # The metric is not told which context it sees, so each is scored by a call of its own.
    for place in range(count):
        one = slice(place, place + 1)
        batch = contexts.clean[one]
        mine = replace(contexts, clean=batch, corrupt=contexts.corrupt[one], wrong=contexts.wrong[one])

        def metric(logits: torch.Tensor, mine: Any = mine) -> torch.Tensor:
            rows = mine.clean.queries.unsqueeze(2).expand(-1, -1, logits.shape[2])
            return mine.difference(logits.gather(1, rows))

        config = tool.EdgeAttributionConfig(granularity="edge")
        result = tool.attribution_patch(model, batch.tokens, mine.corrupt, metric, config)
        for (writer, reader), score in result.edge_scores.items():
            edge = _edge(writer, reader)
            if edge is not None:
                totals[graph.index[edge]] += score
    return from_edges(graph, totals.abs() / count, (1 + GRADIENT_PASS) * count / len(contexts.clean))


def as_bridge(model: ImirTransformer) -> ImirTransformer:
    """Return the same model with MLPs of zeros, and with a bridge's names for the inputs of heads."""
    like = ImirTransformer(replace(model.cfg, attn_only=False, d_mlp=1, act_fn="relu"))
    zeros = {name: torch.zeros_like(value) for name, value in like.named_parameters() if ".mlp." in name}
    like.load_state_dict({**model.state_dict(), **zeros})
    for layer, block in enumerate(like.blocks):
        for slot in ("q", "k", "v"):
            hook = getattr(block, f"hook_{slot}_input")
            for table in (like.hook_dict, like.mod_dict):
                table[f"blocks.{layer}.attn.hook_{slot}_input"] = hook
    return like.eval()


def _edge(writer: Any, reader: Any) -> Edge | None:
    if "mlp" in writer.kind or "mlp" in reader.kind:
        return None
    source = None if writer.kind == "embed" else Head(writer.layer, writer.head)
    if reader.kind == "logits":
        return Edge(source, None, "")
    return Edge(source, Head(reader.layer, reader.head), reader.kind[0])

"""(b) The surrogate's forward pass against the model's, as the model grows wider.

The surrogate never touches d_model: all coordinates of a 2-layer model, or those of the induction circuit alone.
Only the logits at the query are asked for; the model has to compute every position to get there, the surrogate the last
layer at the query alone.
"""

from typing import Any

import torch

from benchmarks.measure import seconds
from imir_lens.lens_model import open_model
from imir_lens.models.config import TransformerConfig
from imir_lens.models.transformer import ImirTransformer
from imir_lens.projector import ImirProjector
from imir_lens.surrogate import Surrogate
from imir_lens.tasks import make_task


def run(*, small: bool = False, seed: int = 0) -> list[dict[str, Any]]:
    """Measure random models: the cost does not depend on what the weights are."""
    task = make_task("recall")
    batch = task.sample(64 if small else 256, torch.Generator().manual_seed(seed))
    rows = []
    for n_heads in (1, 2):
        for d_model in (128,) if small else (128, 512, 1024):
            config = TransformerConfig(
                n_layers=2,
                n_heads=n_heads,
                d_model=d_model,
                d_head=64,
                n_ctx=task.n_positions,
                d_vocab=task.d_vocab,
                attn_only=True,
                normalization_type=None,
            )
            model = open_model(ImirTransformer(config, generator=torch.Generator().manual_seed(seed)))
            projector = ImirProjector.for_task(task, min_coordinate=0.0).fit(model.weights)
            coordinates = projector.coordinates_
            surrogate = Surrogate(projector.space_)
            circuit = coordinates.only(list(task.reference_circuit)).values
            with torch.no_grad():
                forward = seconds(lambda model=model: model.logits(batch.tokens))
                everything = seconds(lambda s=surrogate, c=coordinates: s.logits(c.values, batch))
                alone = seconds(lambda s=surrogate, c=circuit: s.logits(c, batch))
            rows.append(
                {
                    "heads a layer": n_heads,
                    "d_model": d_model,
                    "coordinates": projector.space_.n_active,
                    "model, ms": 1e3 * forward,
                    "surrogate, all / model": everything / forward,
                    "surrogate, circuit / model": alone / forward,
                }
            )
    return rows

"""(d) How fast tasks are sampled, against how fast a model consumes them in training, on the same core.

Batches of 256. The model has 2 layers, d_model 128 and one head a layer; a training step is forward, loss at the
queries and backward, without the optimiser's own work: that would only slow the model down.
"""

from typing import Any

import torch
from torch.nn.functional import cross_entropy

from benchmarks.measure import seconds
from imir_lens.models.transformer import ImirTransformer
from imir_lens.tasks import make_task, task_names
from imir_lens.tasks.base import Batch, Task
from imir_lens.training.recipes import default_config

# Beyond the defaults: the fixed association, the larger n-grams.
SETTINGS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in task_names()),
    ("recall", {"f_r": 0.5, "f_v": 0.5, "burstiness": 0.5, "pairs": 7}),
    ("ngram", {"n": 4}),
    ("ngram", {"n": 2}),
]
BATCH = 256
REQUIRED = 20.0


def run(*, small: bool = False, seed: int = 0) -> list[dict[str, Any]]:
    """Measure every task at its defaults, and some others."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for name, knobs in SETTINGS[: 2 if small else None]:
        task = make_task(name, **knobs)
        batch = task.sample(BATCH, generator)
        drawing = seconds(lambda task=task: task.sample(BATCH, generator), repeats=20)
        training = seconds(_step(task, batch, generator), repeats=3)
        tokens = BATCH * task.n_positions
        rows.append(
            {
                "task": " ".join([name, *(f"{knob}={value}" for knob, value in knobs.items())]),
                "contexts / s": BATCH / drawing,
                "tokens / s": tokens / drawing,
                "trained tokens / s": tokens / training,
                "sampling / training": training / drawing,
                "required": REQUIRED,
            }
        )
    return rows


def _step(task: Task, batch: Batch, generator: torch.Generator) -> Any:
    model = ImirTransformer(default_config(task, n_layers=2, n_heads=1, d_model=128), generator=generator)

    def step() -> None:
        model.zero_grad()
        logits = model(batch.tokens)
        at_queries = logits.gather(1, batch.queries.unsqueeze(2).expand(-1, -1, task.d_vocab))
        cross_entropy(at_queries[batch.mask], batch.targets[batch.mask]).backward()

    return step

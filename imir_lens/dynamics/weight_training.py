"""Full training of a disentangled transformer by plain SGD, on the very contexts that coordinate training draws."""

import torch
from torch import nn

from imir_lens.coordinates import CoordinateSpace
from imir_lens.dynamics.coordinate_training import HELD_OUT, Curves
from imir_lens.dynamics.run_batch import RunBatch, drawn_batches
from imir_lens.errors import OptionError
from imir_lens.evaluation import at_queries, score_logits
from imir_lens.models.disentangled import DisentangledTransformer
from imir_lens.projector import ImirProjector
from imir_lens.tasks.base import Batch, Task


def train_weights(
    model: DisentangledTransformer,
    task: Task,
    *,
    steps: int,
    learning_rate: float,
    batch: int = 128,
    seed: int = 0,
    record_every: int = 50,
    held_out: Batch | None = None,
) -> tuple[CoordinateSpace, Curves]:
    """Train all weights (every `W_KQ`, and `W_U`) in place by SGD, `W ← W − lr ∂L/∂W`.

    `train_many` with `coordinate_metric`, the same learning rate, batch and seed, started from the projection of the
    same model, is its restriction to the manifold.

    Args:
        model: what to train.
        task: fresh contexts are drawn from it at every step.
        steps: optimizer steps.
        learning_rate: constant.
        batch: contexts a step.
        seed: of the contexts.
        record_every: steps between two records of all coordinates.
        held_out: contexts to measure losses on; default, some more of the task.

    Returns:
        The space of the projections, over all paths, and the curves of all its active coordinates (one run).

    Raises:
        OptionError: when the model is too small for the task, or a number is out of range.
    """
    if steps < 0 or record_every < 1 or batch < 1:
        raise OptionError(f"expected steps >= 0, record_every and batch >= 1: found {steps}, {record_every}, {batch}")
    held_out = held_out or task.sample(HELD_OUT, torch.Generator().manual_seed(seed + 1_000_003))
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    projector = ImirProjector.for_task(task, min_coordinate=-1.0)  # keep every path: all are zero in a fresh model
    space = projector.fit(model.circuit_weights()).space_
    places = space.active.nonzero().flatten()
    at: list[int] = []
    rows: list[tuple[float, float, torch.Tensor]] = []

    def record(step: int) -> None:
        with torch.no_grad():
            score = score_logits(at_queries(model(held_out.tokens), held_out), held_out)
            values = projector.transform(model.circuit_weights()).values[places]
        at.append(step)
        rows.append((score.loss, score.accuracy, values))

    for step, drawn in enumerate(drawn_batches(task, [seed], batch=batch, steps=steps)):
        if step % record_every == 0:
            record(step)
        step_weights(model, optimizer, drawn)
    record(steps)
    losses, accuracies = (torch.tensor([row[index] for row in rows]).unsqueeze(1) for index in (0, 1))
    return space, Curves(at, losses, accuracies, torch.stack([row[2] for row in rows]).unsqueeze(1), places)


def step_weights(model: nn.Module, optimizer: torch.optim.Optimizer, drawn: RunBatch) -> None:
    """Take one optimizer step on the contexts of one run."""
    logits = model(drawn.tokens[0])
    queries = drawn.queries[0].unsqueeze(2).expand(-1, -1, logits.shape[2])
    loss = drawn.losses(logits.gather(1, queries).unsqueeze(0)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

"""The same starts in real models: lifted into a disentangled transformer, all of whose weights are then trained.

The model gets exactly the given coordinates at the start, sees the same contexts in the same order as the surrogate
(`initialisation.train_starts` with the same seed), and is over by the same rule. Everything else in its weights starts
at zero and is free to move. What a circuit costs is measured in the model itself: its edge, as projected from the
trained weights, is taken out through hooks.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.ablation import ablate
from imir_lens.coordinates import Coordinates
from imir_lens.dynamics.initialisation import (
    Outcomes,
    StartTraining,
    judging_contexts,
    round_seed,
    winners,
)
from imir_lens.dynamics.rival_circuits import RivalCircuits
from imir_lens.dynamics.run_batch import RunBatch, drawn_batches
from imir_lens.lens_model import open_model
from imir_lens.models.disentangled import DisentangledTransformer
from imir_lens.models.planting import plant_disentangled
from imir_lens.projector import ImirProjector
from imir_lens.tasks.base import Batch


def train_lifted(
    rivals: RivalCircuits,
    start: Float[Tensor, " part"],
    *,
    seed: int = 0,
    training: StartTraining | None = None,
) -> Outcomes:
    """Train a disentangled transformer from one start by gradient descent on all its weights.

    Args:
        rivals: the circuits.
        start: initial values of their parts.
        seed: of the contexts.
        training: how; the learning rate is that of the weights.

    Returns:
        the outcome of one run; its values are the projected coordinates.
    """
    training = training or StartTraining()
    circuit = {str(name): float(value) for name, value in zip(rivals.parts.values(), start, strict=True)}
    model = plant_disentangled(rivals.task, circuit, n_layers=rivals.n_layers, n_heads=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=training.learning_rate)
    judged_on = judging_contexts(rivals)
    nothing = torch.zeros(1, 1, rivals.task.d_vocab)
    at_nothing = float(_loss(nothing.expand(*judged_on.queries.shape, -1), judged_on))
    steps = 0
    while steps < training.steps:
        if float(_loss(_logits(model, judged_on), judged_on)) < training.done * at_nothing:
            break
        these = min(training.check_every, training.steps - steps)
        contexts = round_seed(seed, steps // training.check_every)
        for batch in drawn_batches(rivals.task, [contexts], batch=training.batch, steps=these):
            optimizer.zero_grad()
            batch.losses(_at(model(batch.tokens[0]), batch.queries[0]).unsqueeze(0)).sum().backward()
            optimizer.step()
        steps += these
    return _outcome(rivals, model, judged_on, at_nothing, steps)


def _outcome(
    rivals: RivalCircuits, model: DisentangledTransformer, batch: Batch, nothing: float, steps: int
) -> Outcomes:
    opened = open_model(model)
    coordinates = ImirProjector.for_task(rivals.task, min_coordinate=0.0).fit(opened.weights).coordinates_
    values = _in_space(rivals, coordinates)
    loss = float(_loss(_logits(model, batch), batch))
    learned = max(nothing - loss, 0.1 * nothing)
    costs = []
    for mask in rivals.edges:
        edge = [rivals.space.id(place) for place in (mask & (values != 0)).nonzero().flatten().tolist()]
        if not edge:
            costs.append(0.0)
            continue
        without = ablate(opened, coordinates, edge, batch)
        costs.append((float(_loss(without, batch)) - loss) / learned)
    table, losses = torch.tensor([costs]), torch.tensor([loss])
    return Outcomes(
        names=(*rivals.names, "shared", "none"),
        values=values.unsqueeze(0),
        losses=losses,
        costs=table,
        steps=torch.tensor([steps]),
        winner=winners(losses, table, nothing),
    )


def _in_space(rivals: RivalCircuits, found: Coordinates) -> Float[Tensor, " coordinate"]:
    """Coordinates in the space of the rivals: projected on fewer paths where the others hold nothing."""
    values = torch.zeros(rivals.space.size)
    for name in found:
        values[rivals.space.place(name)] = found[name]
    return values


def _logits(model: DisentangledTransformer, batch: Batch) -> Float[Tensor, "context query vocab"]:
    with torch.no_grad():
        return _at(model(batch.tokens), batch.queries)


def _at(logits: Tensor, queries: Tensor) -> Float[Tensor, "context query vocab"]:
    return logits.gather(1, queries.unsqueeze(-1).expand(-1, -1, logits.shape[-1]))


def _loss(logits: Float[Tensor, "context query vocab"], batch: Batch) -> Float[Tensor, ""]:
    return RunBatch.of(batch).losses(logits.unsqueeze(0))[0]

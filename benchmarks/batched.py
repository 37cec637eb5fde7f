"""Many trainings as one tensor program against a loop over them: surrogates, and full models by `torch.func.vmap`.

Loop and batch take the same steps on the same contexts by plain SGD; all on the threads that the result states. Each
case trains for a number of steps from random initial values; seconds are the least of some repeats.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from benchmarks.measure import seconds
from imir_lens.coordinates import CoordinateSpace
from imir_lens.dynamics.coordinate_sets import mask_of_roles
from imir_lens.dynamics.coordinate_training import train_many
from imir_lens.dynamics.run_batch import drawn_batches
from imir_lens.evaluation import cross_entropy
from imir_lens.models.config import TransformerConfig
from imir_lens.models.transformer import ImirTransformer
from imir_lens.paths import PathTable
from imir_lens.surrogate import Surrogate
from imir_lens.tasks import make_task
from imir_lens.tasks.base import Batch, Task
from imir_lens.terms import Reads

BATCH = 64
RATE = 1.0
POOL = 8192


def run(*, small: bool = False, seed: int = 0) -> list[dict[str, Any]]:
    """Measure surrogates of the circuit and of all coordinates, then small full models."""
    task = make_task("recall")
    space = CoordinateSpace(PathTable.full(2, 1), task.relations, task.n_positions, task.query_positions)
    runs, steps = (3, 2) if small else (64, 40)
    circuit = mask_of_roles(task, space)
    everything = space.active
    pool = task.sample(POOL, torch.Generator().manual_seed(seed))
    cases: list[tuple[str, str, Tensor, int, Batch | None]] = [
        ("surrogate of the circuit", "the same for all", circuit, steps, None),
        ("surrogate of the circuit", f"each its own, from {POOL}", circuit, steps, pool),
        ("surrogate of the circuit", "each its own, fresh", circuit, steps, None),
        ("surrogate of all coordinates", "the same for all", everything, max(steps // 16, 2), None),
    ]
    rows = [
        _surrogates(task, space, name, contexts, mask, runs=runs, steps=length, pool=drawn_from, seed=seed)
        for name, contexts, mask, length, drawn_from in cases
    ]
    widths = (16,) if small else (16, 64)
    return rows + [_models(task, width, runs=min(runs, 16), steps=2, seed=seed) for width in widths]


def tables(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return what a page shows: surrogates, and full models."""
    full = [row for row in rows if row["trained"].startswith("full")]
    return {"surrogates": [row for row in rows if row not in full], "full models": full}


def _surrogates(
    task: Task,
    space: CoordinateSpace,
    name: str,
    contexts: str,
    mask: Tensor,
    *,
    runs: int,
    steps: int,
    pool: Batch | None,
    seed: int,
) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    initial = torch.where(mask, 0.3 * torch.randn(runs, space.size, generator=generator), 0.0)
    seeds = [seed] * runs if contexts.startswith("the same") else [seed + k for k in range(runs)]
    held_out = task.sample(1, generator)
    options: dict[str, Any] = {
        "chosen": mask, "steps": steps, "learning_rate": RATE, "batch": BATCH, "pool": pool,
        "held_out": held_out, "record_every": steps,
    }  # fmt: skip

    def batched() -> Tensor:
        return train_many(task, space, initial, seeds=seed if len(set(seeds)) == 1 else seeds, **options).values

    def loop() -> Tensor:
        alone = [train_many(task, space, initial[k : k + 1], seeds=[seeds[k]], **options).values for k in range(runs)]
        return torch.cat(alone)

    def plain() -> Tensor:
        return torch.stack([_plain(task, space, initial[k], mask, seeds[k], steps, pool) for k in range(runs)])

    return _row(name, contexts, int(mask.sum()), runs, steps, batched, {"loop": loop, "loop of Surrogate": plain})


def _plain(
    task: Task, space: CoordinateSpace, initial: Tensor, mask: Tensor, seed: int, steps: int, pool: Batch | None
) -> Tensor:
    """The same training with the library's surrogate for one model."""
    surrogate, reads = Surrogate(space), Reads.of(space, mask)
    values = initial.clone()
    for drawn in drawn_batches(task, [seed], batch=BATCH, steps=steps, pool=pool):
        batch = Batch(drawn.tokens[0], drawn.queries[0], drawn.targets[0], drawn.mask[0])
        values.requires_grad_(True)
        (gradient,) = torch.autograd.grad(cross_entropy(surrogate.logits(values, batch, reads=reads), batch), values)
        values = torch.where(mask, values.detach() - RATE * gradient, values.detach())
    return values


def _models(task: Task, width: int, *, runs: int, steps: int, seed: int) -> dict[str, Any]:
    config = TransformerConfig(
        n_layers=2, n_heads=1, d_model=width, d_head=width, n_ctx=task.n_positions, d_vocab=task.d_vocab,
        attn_only=True, normalization_type=None,
    )  # fmt: skip
    models = [ImirTransformer(config, generator=torch.Generator().manual_seed(seed + k)) for k in range(runs)]
    start = {
        name: torch.stack([dict(m.named_parameters())[name].detach() for m in models]) for name in _names(models[0])
    }
    batches = list(drawn_batches(task, [seed], batch=BATCH, steps=steps))

    def loss(parameters: dict[str, Tensor], tokens: Tensor, targets: Tensor) -> Tensor:
        logits = functional_call(models[0], parameters, (tokens,))[:, -1]
        return torch.nn.functional.cross_entropy(logits, targets)

    gradients = vmap(grad(loss), in_dims=(0, None, None))

    def batched() -> Tensor:
        values = start
        for drawn in batches:
            moves = gradients(values, drawn.tokens[0], drawn.targets[0, :, 0])
            values = {name: value - RATE * moves[name] for name, value in values.items()}
        return torch.cat([value.flatten(1) for value in values.values()], dim=1)

    def loop() -> Tensor:
        ends = []
        for k in range(runs):
            values = {name: value[k].clone() for name, value in start.items()}
            for drawn in batches:
                wanted = {name: value.requires_grad_(True) for name, value in values.items()}
                found = torch.autograd.grad(
                    loss(wanted, drawn.tokens[0], drawn.targets[0, :, 0]), list(wanted.values()), allow_unused=True
                )
                values = {
                    name: value.detach() if move is None else value.detach() - RATE * move
                    for (name, value), move in zip(wanted.items(), found, strict=True)
                }
            ends.append(torch.cat([value.flatten() for value in values.values()]))
        return torch.stack(ends)

    n = sum(value[0].numel() for value in start.values())
    return _row(f"full model, d_model {width}", "the same for all", n, runs, steps, batched, {"loop": loop})


def _names(model: ImirTransformer) -> list[str]:
    return [name for name, _ in model.named_parameters()]


def _row(
    name: str,
    contexts: str,
    numbers: int,
    runs: int,
    steps: int,
    batched: Callable[[], Tensor],
    loops: dict[str, Callable[[], Tensor]],
) -> dict[str, Any]:
    together = batched()
    row: dict[str, Any] = {"trained": name, "contexts": contexts, "numbers": numbers, "runs": runs, "steps": steps}
    one = seconds(batched, repeats=3)
    row["batched, ms a step"] = 1e3 * one / steps
    for title, loop in loops.items():
        row[f"{title} / batched"] = seconds(loop, repeats=2) / one
        row[f"largest difference, {title}"] = float((loop() - together).abs().max())
    return row

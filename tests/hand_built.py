"""Small models whose answer is known: a task, the circuit planted for it, and the least shape that holds the circuit.

Sizes are small so that tests stay fast; every coordinate is needed, by more than a hundredth of what is to be gained.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from imir_lens.models.constructions import (
    hop_circuit,
    induction_circuit,
    memory_circuit,
    mixed_circuit,
    plant,
    plant_disentangled,
    shared_circuit,
)
from imir_lens.models.disentangled import DisentangledTransformer
from imir_lens.models.transformer import ImirTransformer
from imir_lens.tasks import make_task
from imir_lens.tasks.base import Batch, Task

RECALL = {"vocab": 24, "pairs": 4, "length": 14}


@dataclass(frozen=True)
class HandBuilt:
    """A task with a circuit that solves it."""

    task: Task
    circuit: dict[str, float]
    n_layers: int
    n_heads: int = 1

    def shape(self, **options) -> dict:
        return {"n_layers": self.n_layers, "n_heads": self.n_heads, **options}

    def model(self, *, seed: int = 0, **options) -> ImirTransformer:
        generator = torch.Generator().manual_seed(seed)
        return plant(self.task, self.circuit, **self.shape(generator=generator, **options))

    def disentangled(self, **options) -> DisentangledTransformer:
        return plant_disentangled(self.task, self.circuit, **self.shape(**options))

    def without(self, *names: str) -> "HandBuilt":
        for name in names:
            assert name in self.circuit
        left = {name: value for name, value in self.circuit.items() if name not in names}
        return HandBuilt(self.task, left, self.n_layers, self.n_heads)

    def batch(self, contexts: int = 512, seed: int = 1) -> Batch:
        return self.task.sample(contexts, torch.Generator().manual_seed(seed))


def induction(**options) -> HandBuilt:
    return HandBuilt(make_task("recall", **RECALL), induction_circuit(**options), 2)


def memory(**options) -> HandBuilt:
    return HandBuilt(make_task("recall", **RECALL, f_r=0.0), memory_circuit(**options), 1)


def mixed(**options) -> HandBuilt:
    task = make_task("recall", **RECALL, f_r=0.5, burstiness=0.5)
    return HandBuilt(task, mixed_circuit(length=RECALL["length"], **options), 3)


def hop(hops: int = 2, **options) -> HandBuilt:
    task = make_task("hop", vocab=24, hops=hops, chains=2, distractors=1, length=4 * hops + 6)
    return HandBuilt(task, hop_circuit(hops, **options), hops + 1)


def shared(role: str, **options) -> HandBuilt:
    # In longer contexts half of a shared role is too little.
    return HandBuilt(make_task("recall"), shared_circuit(role, **options), 2, 2)


def all_kinds() -> dict[str, HandBuilt]:
    kinds = {"induction": induction(), "memory": memory(), "mixed": mixed(), "hop2": hop(2), "hop3": hop(3)}
    return kinds | {f"shared {role}": shared(role) for role in ("alpha", "beta")}


def at_queries(model: torch.nn.Module, batch: Batch) -> Tensor:
    """Logits at the one query of each context, in double precision."""
    with torch.no_grad():
        logits = model(batch.tokens)
    return logits[torch.arange(len(batch)), batch.queries[:, 0]].double()


def excess(model: torch.nn.Module, task: Task, batch: Batch, *, certain: bool = False) -> float:
    """Mean divergence of the model's prediction from the optimal one; only where that is certain, if asked."""
    best = task.bayes(batch)[:, 0].double()
    divergence = (best * (best.clamp(min=1e-300).log() - at_queries(model, batch).log_softmax(-1))).sum(-1)
    return divergence[best.amax(-1) > 0.999 if certain else slice(None)].mean().item()

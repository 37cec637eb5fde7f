"""What can be planted: tasks with their circuits. A new task is one more entry of `FAMILIES`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.planted.placement import Stages
from imir_lens.models.constructions import (
    copy_circuit,
    hop_circuit,
    induction_circuit,
    inversion_circuit,
    ioi_circuit,
    memory_circuit,
    ngram_circuit,
    retrieval_circuit,
)
from imir_lens.tasks import make_task
from imir_lens.tasks.base import Task

Heads = Mapping[str, str]


@dataclass(frozen=True)
class Family:
    """A task and the circuit that solves it.

    Attributes:
        task: the task's name.
        parts: the circuit's parts, each in a head of its own; those of a stage lie in layers above the one before it.
        circuit: heads by part → coordinate id → value.
        knobs: of the task, from large to small: the first that fits the model's width is taken.
        backup: another circuit that solves the task alone, and its parts; None plants the same one in other heads.
        contexts: how many every detector gets.
    """

    task: str
    parts: Stages
    circuit: Callable[[Heads], dict[str, float]]
    knobs: tuple[Mapping[str, Any], ...]
    backup: "Family | None" = None
    contexts: int = 64

    def tasks(self) -> list[Task]:
        """Return the task at each of the sizes, large to small."""
        return [make_task(self.task, **knobs) for knobs in self.knobs]


def _induction(**options: float) -> Callable[[Heads], dict[str, float]]:
    return lambda heads: induction_circuit(heads=heads, **options)


def _hop(hops: int) -> Callable[[Heads], dict[str, float]]:
    return lambda heads: hop_circuit(hops, heads=heads)


_INDUCTION = (("alpha",), ("beta",))
_MATCH = (("alpha_1",), ("beta_1",))
_CONJUNCTION = (("alpha_1", "alpha_2"), ("beta_1",))
_MEMORY = {"f_r": 0.0, "f_v": 0.0}
# Few places are left empty: a coordinate that keeps the matching head off the token itself is needed only where the
# queried pair stands first, and must be needed often enough to belong to the truth.
# Rare pairs need the context, absent common ones need memory.
_MIXED = {"f_r": 0.25, "burstiness": 0.8}

_RECALL = Family(
    "recall",
    _INDUCTION,
    _induction(),
    ({"vocab": 20, "pairs": 4, "length": 10}, {"vocab": 12, "pairs": 3, "length": 8}),
)

FAMILIES: dict[str, Family] = {
    "recall in-context": _RECALL,
    "recall memory": Family(
        "recall",
        (),
        lambda heads: memory_circuit(),
        ({"vocab": 21, "pairs": 4, "length": 10, **_MEMORY}, {"vocab": 13, "pairs": 3, "length": 8, **_MEMORY}),
        backup=_RECALL,
    ),
    "recall mixed": Family(
        "recall",
        _INDUCTION,
        lambda heads: induction_circuit(gamma=20.0, heads=heads) | memory_circuit(delta=20.0),
        ({"vocab": 21, "pairs": 3, "length": 7, **_MIXED}, {"vocab": 17, "pairs": 3, "length": 7, **_MIXED}),
        backup=Family("recall", _INDUCTION, _induction(gamma=20.0), ()),
        contexts=128,  # each of the two mechanisms is needed in a sixth of them only
    ),
    "2-hop": Family(
        "hop",
        (("alpha",), ("beta_1",), ("beta_2",)),
        _hop(2),
        ({"vocab": 20, "length": 14}, {"vocab": 10, "length": 10, "distractors": 0}),
    ),
    "3-hop": Family(
        "hop",
        (("alpha",), ("beta_1",), ("beta_2",), ("beta_3",)),
        _hop(3),
        (
            {"vocab": 16, "length": 15, "hops": 3, "distractors": 1},
            {"vocab": 10, "length": 13, "hops": 3, "distractors": 0},
        ),
    ),
    "3-gram": Family(
        "ngram",
        _CONJUNCTION,
        lambda heads: ngram_circuit(heads=heads),
        ({"vocab": 12, "length": 16}, {"vocab": 6, "length": 12}),
    ),
    "retrieval": Family(
        "retrieval",
        _CONJUNCTION,
        lambda heads: retrieval_circuit(heads=heads),
        ({"vocab": 16, "keys": 3, "fields": 2, "length": 22}, {"vocab": 10, "keys": 2, "fields": 2, "length": 14}),
    ),
    "inversion": Family(
        "inversion",
        _MATCH,
        lambda heads: inversion_circuit(heads=heads),
        ({"vocab": 20, "pairs": 4, "length": 10}, {"vocab": 12, "pairs": 3, "length": 8}),
    ),
    "copy": Family(
        "copy",
        _MATCH,
        lambda heads: copy_circuit(heads=heads),
        ({"vocab": 20, "segment": 5, "length": 14}, {"vocab": 10, "segment": 4, "length": 10}),
    ),
    "ioi": Family(
        "ioi",
        (("alpha", "names"),),
        lambda heads: ioi_circuit(heads=heads),
        (
            {"vocab": 20, "names": 10, "distractors": 3, "length": 12},
            {"vocab": 10, "names": 6, "distractors": 2, "length": 9},
        ),
    ),
    "ioi, no gap": Family(
        "ioi",
        (("names",),),
        lambda heads: ioi_circuit(gap=0, heads=heads),
        (
            {"vocab": 20, "names": 10, "distractors": 3, "length": 12, "gap": 0},
            {"vocab": 10, "names": 6, "distractors": 2, "length": 9, "gap": 0},
        ),
    ),
}

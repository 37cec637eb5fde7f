"""What to train with: the demonstration, and the defaults for any task."""

from dataclasses import dataclass, field
from typing import Any

from imir_lens.errors import OptionError, did_you_mean
from imir_lens.ids import CoordinateId
from imir_lens.models.config import TransformerConfig
from imir_lens.tasks.base import Task
from imir_lens.tasks.hop import Hop
from imir_lens.tasks.ioi import Ioi
from imir_lens.tasks.ngram import Ngram
from imir_lens.tasks.recall import Recall
from imir_lens.tasks.retrieval import Retrieval

_STAGE = 1000  # steps for each length of a chain before the full one
_NARROW = {"d_model": 64, "d_head": 32}


@dataclass(frozen=True)
class Recipe:
    """What `train` needs: `train(recipe.task, recipe.config, run=…, **recipe.options)`.

    Attributes:
        task: what to learn.
        config: the model to start from.
        options: steps and whatever else departs from `train`'s defaults.
    """

    task: Task
    config: TransformerConfig
    options: dict[str, Any] = field(default_factory=dict)


def default_config(task: Task, **changes: Any) -> TransformerConfig:
    """Return the attention-only model, without norm and with learned positions, that a task is trained on by default.

    It has the layers of the task's reference circuit, at least two, and as many heads in each as that needs in any.

    Args:
        task: what it has to fit.
        changes: config fields to set otherwise.

    Raises:
        OptionError: for a field that does not exist.
    """
    units = [CoordinateId.parse(text) for text in task.reference_circuit]
    heads = [head for unit in units for head in [unit.head, *(h for p in unit.paths for h in p.heads)] if head]
    fields: dict[str, Any] = {
        "d_model": 128,
        "d_head": 64,
        "n_heads": max([1, *(head.index + 1 for head in heads)]),
        "n_layers": max([2, *(head.layer + 1 for head in heads)]),
        "n_ctx": task.n_positions,
        "d_vocab": task.d_vocab,
        "attn_only": True,
        "normalization_type": None,
    }
    known = TransformerConfig.__dataclass_fields__
    for name in changes:
        if name not in known:
            raise OptionError(f"unknown model field {name!r}; {did_you_mean(name, known)}")
    return TransformerConfig.from_dict({**fields, **changes})


def default_recipe(task: Task, **changes: Any) -> Recipe:
    """Return the recipe of `imir-lens train` for a task.

    - `recall` reaches the optimal loss within half the steps.
    - Chains of hops are learned from the shortest on, at a width of 64: without that, two hops stay near chance for
      thousands of steps.
    - `ioi` starts from larger weights: from small ones all heads learn to copy names, and none to subtract one.
    - Two matches at once (`retrieval`, `ngram` with n > 2) are not learned in this time. A smaller `retrieval` is, from
      larger weights and with more heads than it needs: see `TRAINED`.

    Args:
        task: what to learn.
        changes: config fields to set otherwise.

    Raises:
        OptionError: for a field that does not exist.
    """
    if isinstance(task, Ioi):
        return Recipe(task, default_config(task, **{"initializer_range": 0.2, **changes}), {"steps": 2000})
    if isinstance(task, Hop) and task.hops > 1:
        curriculum = _shorter_chains(task, _STAGE)
        options = {"steps": curriculum[-1][0] + 3 * _STAGE, "learning_rate": 5e-3, "curriculum": curriculum}
        return Recipe(task, default_config(task, **{**_NARROW, **changes}), options)
    return Recipe(task, default_config(task, **changes), {"steps": 2000})


def _shorter_chains(task: Hop, stage: int) -> list[tuple[int, dict[str, int]]]:
    """Return a stage for each number of hops below the task's, each with as many chains as fit."""
    room, words = task.n_blocks - task.distractors, task.vocab - 1 - 2 * task.distractors
    chains = {hops: min(room // hops, words // (hops + 1)) for hops in range(1, task.hops)}
    return [(stage * hops, {"hops": hops, "chains": count}) for hops, count in chains.items()]


DEMO = Recipe(Recall(), default_config(Recall()), {"steps": 1000})
# With more heads than needed, and large weights to start from, some heads look where they have to from the beginning.
_MANY = {**_NARROW, "n_heads": 4}
_IOI = Ioi(vocab=12, names=8, distractors=2, length=7)
_HOP = Hop(vocab=32, distractors=1, length=16)
_RETRIEVAL = Retrieval(vocab=24, keys=2, fields=2, length=18)
TRAINED: dict[str, Recipe] = {
    "recall": Recipe(Recall(), default_config(Recall()), {"steps": 800}),
    "ngram": Recipe(Ngram(n=2), default_config(Ngram(n=2)), {"steps": 600}),
    "ioi": Recipe(
        _IOI, default_config(_IOI, n_layers=1, initializer_range=0.3, **_MANY), {"steps": 400, "learning_rate": 2e-3}
    ),
    "hop": Recipe(
        _HOP,
        default_config(_HOP, **_NARROW),
        {"steps": 3000, "learning_rate": 5e-3, "curriculum": _shorter_chains(_HOP, 500)},
    ),
    "retrieval": Recipe(
        _RETRIEVAL, default_config(_RETRIEVAL, initializer_range=0.2, **_MANY), {"steps": 2000, "weight_decay": 0.03}
    ),
}
"""A model for each task that trains within a minute or two on one core."""

"""What to train with: the demonstration, and the defaults for any task."""

from dataclasses import dataclass, field
from typing import Any

from imir_lens.errors import OptionError, did_you_mean
from imir_lens.ids import CoordinateId
from imir_lens.models.config import TransformerConfig
from imir_lens.tasks.base import Task
from imir_lens.tasks.recall import Recall


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


def default_recipe(task: Task) -> Recipe:
    """Return the recipe of `imir-lens train` for a task.

    `recall` reaches the optimal loss with it, within half the steps; two hops take longer.
    """
    return Recipe(task, default_config(task), {"steps": 2000})


DEMO = Recipe(Recall(), default_config(Recall()), {"steps": 1000})

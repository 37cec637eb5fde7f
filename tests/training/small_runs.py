"""A run small enough to repeat many times."""

from typing import Any

import torch

from imir_lens.checkpoints import load_checkpoint
from imir_lens.tasks import Recall
from imir_lens.training import default_config, train

TASK = Recall(vocab=9, pairs=2, length=7)
CONFIG = default_config(TASK, d_model=8, d_head=4)
OPTIONS: dict[str, Any] = {"steps": 30, "batch": 16, "evaluate_every": 12, "warmup": 5, "seed": 3}


def small_run(run, *, task=TASK, model=CONFIG, **changes):
    return train(task, model, run=run, **{**OPTIONS, **changes})


def weights(run, step=30):
    return load_checkpoint(run / "checkpoints" / f"step_{step:08d}.pt").state_dict


def same_weights(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)

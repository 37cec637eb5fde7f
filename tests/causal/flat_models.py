"""Ordinary transformers for the causal tests: exact ones, with or without an idle MLP, and untrained ones."""

from dataclasses import replace

import torch

from imir_lens.causal.flat_construction import construct_flat
from imir_lens.models.transformer import ImirTransformer
from imir_lens.tasks.causal_tree import CausalTree

TASK = CausalTree(d=4, positions=5, examples=2)


def episodes(contexts=200, seed=3, task=TASK, **options):
    return task.sample_episodes(contexts, torch.Generator().manual_seed(seed), **options)


def with_idle_mlp(model: ImirTransformer) -> ImirTransformer:
    """The same model with an MLP that writes nothing."""
    wider = ImirTransformer(replace(model.cfg, attn_only=False, d_mlp=8))
    state = wider.state_dict()
    for name in state:
        state[name] = model.state_dict().get(name, torch.zeros_like(state[name]))
    wider.load_state_dict(state)
    return wider.eval()


def untrained(task=TASK, *, attn_only=True) -> ImirTransformer:
    cfg = replace(construct_flat(task).cfg, attn_only=attn_only, dtype=torch.float32)
    return ImirTransformer(cfg).eval()

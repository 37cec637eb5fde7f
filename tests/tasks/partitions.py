"""Partitions of token pairs: those that relations declare, and those that orbits make."""

import torch


def declared_partition(task):
    """Number the pairs by class pair and by the matchings that hold them."""
    relations = task.relations
    kind = relations.class_of()
    label = kind.unsqueeze(1) * len(relations.classes) + kind
    for name in relations.matchings:
        label = 2 * label + relations.matrix(name)
    return label


def same_partition(a, b):
    both = torch.stack([a.flatten(), b.flatten()], 1).unique(dim=0)
    return len(both) == len(a.unique()) == len(b.unique())

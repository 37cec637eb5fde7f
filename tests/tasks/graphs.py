"""Causal trees by brute force: every graph, one after another, in plain Python."""

from itertools import product

import torch


def graphs(positions: int) -> list[tuple[int, ...]]:
    """All graphs: the parent of each position (−1 for the root)."""
    return [(-1, *parents) for parents in product(*(range(h) for h in range(1, positions)))]


def tree_probability(values: list[int], graph: tuple[int, ...], pi, mu) -> float:
    """Probability of the first positions of one example, given the graph."""
    p = float(mu[values[0]])
    for h in range(1, len(values)):
        p *= float(pi[values[graph[h]], values[h]])
    return p


def power_law(pi: torch.Tensor) -> torch.Tensor:
    """The stationary law, by going on for long."""
    return torch.linalg.matrix_power(pi.double(), 4096)[0]

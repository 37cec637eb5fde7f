"""Where a circuit and its decoys go: heads in increasing layers, drawn at random, none used twice."""

from collections.abc import Collection, Sequence
from itertools import combinations

import torch

from imir_lens.ids import Head

# The parts of a circuit, stage by stage: those of one stage lie below all of the next, in any heads of their own.
Stages = Sequence[Sequence[str]]
_TRIES = 40


def place_chains(
    chains: Sequence[Stages], *, n_layers: int, n_heads: int, generator: torch.Generator
) -> list[dict[str, Head]] | None:
    """Give every part of every chain a head of its own, stage above stage.

    Returns:
        Part → head for each chain; None when no try of a few dozen fits.
    """
    for _ in range(_TRIES):
        taken: set[Head] = set()
        placed = []
        for stages in chains:
            heads = _place(stages, taken, n_layers=n_layers, n_heads=n_heads, generator=generator)
            if heads is None:
                break
            taken |= set(heads.values())
            placed.append(heads)
        else:
            return placed
    return None


def _place(
    stages: Stages, taken: Collection[Head], *, n_layers: int, n_heads: int, generator: torch.Generator
) -> dict[str, Head] | None:
    """Cut the layers into as many runs as there are stages, and draw each stage's heads from its run."""
    if not stages:
        return {}
    cuts = list(combinations(range(1, n_layers), len(stages) - 1))
    if not cuts:
        return None
    bounds = (0, *cuts[_draw(len(cuts), generator)], n_layers)
    placed: dict[str, Head] = {}
    for parts, start, stop in zip(stages, bounds, bounds[1:], strict=False):
        free = [Head(layer, index) for layer in range(start, stop) for index in range(n_heads)]
        free = [head for head in free if head not in taken]
        for part in parts:
            if not free:
                return None
            placed[part] = free.pop(_draw(len(free), generator))
    return placed


def _draw(count: int, generator: torch.Generator) -> int:
    return int(torch.randint(count, (), generator=generator))

"""Where a circuit and its decoys go: heads in increasing layers, drawn at random, none used twice."""

from collections.abc import Collection, Sequence
from itertools import combinations

import torch

from imir_lens.ids import Head

_TRIES = 40


def place_chains(
    chains: Sequence[Sequence[str]], *, n_layers: int, n_heads: int, generator: torch.Generator
) -> list[dict[str, Head]] | None:
    """Give every part of every chain a head of its own; parts of one chain lie in increasing layers.

    Returns:
        Part → head for each chain; None when no try of a few dozen fits.
    """
    for _ in range(_TRIES):
        taken: set[Head] = set()
        placed = []
        for parts in chains:
            heads = _place(len(parts), taken, n_layers=n_layers, n_heads=n_heads, generator=generator)
            if heads is None:
                break
            taken |= set(heads)
            placed.append(dict(zip(parts, heads, strict=True)))
        else:
            return placed
    return None


def _place(
    length: int, taken: Collection[Head], *, n_layers: int, n_heads: int, generator: torch.Generator
) -> list[Head] | None:
    free = {
        layer: [head for index in range(n_heads) if (head := Head(layer, index)) not in taken]
        for layer in range(n_layers)
    }
    options = list(combinations([layer for layer, heads in free.items() if heads], length))
    if not options:
        return None
    return [_pick(free[layer], generator) for layer in _pick(options, generator)]


def _pick(options: Sequence, generator: torch.Generator):  # noqa: ANN202
    return options[int(torch.randint(len(options), (), generator=generator))]

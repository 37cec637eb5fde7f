"""Which models the benchmark holds: every task × noise × decoy, over shapes used as evenly as they fit."""

from collections import Counter
from itertools import product

import torch

from benchmarks.planted.families import FAMILIES
from benchmarks.planted.models import DECOYS, HEADS, LAYERS, NOISES, WIDTHS, Spec, fits

# The paths of a model number (heads + 1)^layers; the two largest shapes, (5, 3) and (5, 4), are left to the size sweep.
_MOST_PATHS = 700
_SWEEP_BASE = {"family": "recall in-context", "noise": 0.1, "decoy": "random"}


def full_design(seed: int, *, replicas: int = 1) -> list[Spec]:
    """Return the whole benchmark: every task × noise × decoy, each in `replicas` shapes: 220 models.

    Shapes are taken greedily, the one whose layers, heads and width were used least so far; ties are drawn.
    """
    generator = torch.Generator().manual_seed(seed)
    used: Counter[tuple[str, int]] = Counter()
    specs: list[Spec] = []
    shapes = [shape for shape in product(LAYERS, HEADS, WIDTHS) if (shape[1] + 1) ** shape[0] <= _MOST_PATHS]
    for _, family, decoy, noise in product(range(replicas), FAMILIES, DECOYS, NOISES):
        number = seed * 10_000 + len(specs)
        options = [
            spec
            for layers, heads, width in shapes
            if fits(spec := Spec(family, layers, heads, width, noise, decoy, number))
        ]
        ties = torch.rand(len(options), generator=generator).tolist()
        costs = [sum(used[key] for key in _keys(spec)) + tie for spec, tie in zip(options, ties, strict=True)]
        chosen = options[costs.index(min(costs))]
        used.update(_keys(chosen))
        specs.append(chosen)
    return specs


def size_sweep(seed: int) -> list[Spec]:
    """Return one task at growing sizes, one axis at a time, and once at the largest shape."""
    shapes = [(layers, 2, 128) for layers in LAYERS]
    shapes += [(3, heads, 128) for heads in HEADS if heads != 2]
    shapes += [(3, 2, width) for width in WIDTHS if width != 128]
    shapes += [(5, 3, 128), (5, 4, 128)]
    return [
        Spec(n_layers=layers, n_heads=heads, d_model=width, seed=seed * 10_000 + 9_000 + place, **_SWEEP_BASE)
        for place, (layers, heads, width) in enumerate(shapes)
    ]


def small_design(seed: int) -> list[Spec]:
    """Return six quick models, one with each decoy and each task."""
    rows = [
        ("recall in-context", 2, 2, 64, 0.0, "none"),
        ("recall in-context", 3, 2, 128, 0.1, "unread"),
        ("recall memory", 2, 2, 128, 0.1, "backup"),
        ("recall mixed", 3, 1, 128, 0.05, "auxiliary"),
        ("2-hop", 3, 2, 128, 0.1, "random"),
        ("3-hop", 4, 1, 128, 0.05, "random"),
    ]
    return [Spec(*row, seed=seed * 10_000 + place) for place, row in enumerate(rows)]


def _keys(spec: Spec) -> list[tuple[str, int]]:
    return [("layers", spec.n_layers), ("heads", spec.n_heads), ("width", spec.d_model)]

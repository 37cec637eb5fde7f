"""The interactive attention view: CircuitsVis, bundled once into the page, without its own page writer.

CircuitsVis writes raw JSON into scripts, leaves tags open and asks the network which bundle to take. Here the bundle
is read from the installed wheel as text (importing the package would import torch), and each figure's data stands in
an inert JSON block that a fixed script reads; the page names the hashes of both scripts and no other one may run.
"""

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from imir_lens.figures.style import THEMES, Real, visible

MOST_DATA: Final = 1_600_000
MOST_FIGURES: Final = 800_000
"""Bytes of attention data and of fixed figures in one page: with the bundle (1.3 MB) it stays under 4 MB."""

LICENCES: Final = (
    "This page contains CircuitsVis (MIT, Copyright (c) 2022 Alan Cooney), read from the installed package.",
    "Its bundle contains: React, React DOM, scheduler, prop-types (MIT, Copyright (c) Facebook, Inc. and affiliates);",
    "Chart.js (MIT, Copyright (c) Chart.js Contributors); chartjs-chart-matrix, @kurkle/color (MIT, Copyright (c)",
    "Jukka Kurkela); react-chartjs-2 (MIT, Copyright (c) Jeremy Ayerst); react-grid-system,",
    "react-popper, react-popper-tooltip, @popperjs/core, react-fast-compare, @babel/runtime, colord,",
    "tinycolor2, seedrandom (MIT); TensorFlow.js (Apache-2.0, Copyright Google LLC); long (Apache-2.0, Copyright",
    "Daniel Wirtz). The MIT licence: permission is granted, free of charge, to any person obtaining a copy, to deal in",
    "the software without restriction, provided that the copyright and this notice are included in all copies; it",
    "comes AS IS, without warranty of any kind. Apache-2.0: www.apache.org/licenses/LICENSE-2.0.",
)


def read_bundle() -> str | None:
    """Return the script of the installed CircuitsVis, made safe to stand in a page; None when it is not installed."""
    spec = find_spec("circuitsvis")
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / "dist" / "cdn" / "iife.js"
    if not path.is_file():
        return None
    code = path.read_text("utf-8").partition("//# sourceMappingURL=")[0]
    # Inside a page these two sequences would end the script or hide its end; in JavaScript the backslash is void.
    return code.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def bundle_version() -> str:
    """Return the version of the installed CircuitsVis, for the page to name."""
    try:
        return version("circuitsvis")
    except PackageNotFoundError:
        return "of unknown version"


def as_data(value: object) -> str:
    """Write JSON that may stand in a script element whatever its strings hold: `<` is written as an escape."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _short(value: Real) -> Real:
    """Three decimals, and whole numbers without their `.0`: most of a pattern is 0."""
    rounded = round(value, 3)
    return int(rounded) if rounded == int(rounded) else rounded


def attention_props(example: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `CircuitsVis.AttentionHeads` draws for one context.

    It paints tokens on a canvas, so they need no HTML escapes, but it drops blanks, so these are made visible.
    """
    patterns = [[[_short(p) for p in row] for row in pattern] for pattern in example["attention"].values()]
    causal = all(p == 0 for pattern in patterns for i, row in enumerate(pattern) for p in row[i + 1 :])
    return {
        "tokens": [visible(token) for token in example["tokens"]],
        "attention": patterns,
        "attentionHeadNames": list(example["attention"]),
        "maxValue": 1,
        "minValue": -1,
        "positiveColor": THEMES["light"]["cell"],
        "maskUpperTri": causal,
    }


def fitting(blocks: Sequence[str], most: int) -> list[str | None]:
    """Return the blocks that fit into a page one after another, None in place of each that does not."""
    out: list[str | None] = []
    for block in blocks:
        fits = len(block) <= most
        out.append(block if fits else None)
        most -= len(block) if fits else 0
    return out

"""What the rows come to."""

from collections.abc import Sequence
from statistics import mean, median
from typing import Any

import torch

from benchmarks.initialisation.planes import HIGH, LOW, PLANES, box_starts, rivals_of_benchmark
from benchmarks.initialisation.run import LETTERS
from imir_lens.dynamics.initialisation import axis
from imir_lens.dynamics.winner_predictors import Accuracy, agreement, cross_validated

Rows = Sequence[dict[str, Any]]


def tables(rows: Rows, *, seed: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Sum up."""
    return {
        "maps": _maps(rows),
        "boundaries": _boundaries(rows),
        "predictions": _predictions(rows, seed),
        "training": _training(rows),
        "real": _real(rows),
    }


def of(rows: Rows, part: str, **fields: Any) -> list[dict[str, Any]]:
    """Return the rows of a part."""
    return [row for row in rows if row["part"] == part and all(row.get(k) == v for k, v in fields.items())]


def cells_of(rows: Rows, plane: str) -> list[str]:
    """Return a map, the lowest row first."""
    found = sorted(of(rows, "map", plane=plane), key=lambda row: row["row"])
    return [cells for row in found for cells in row["cells"]]


def _planes(rows: Rows) -> list[str]:
    return list(dict.fromkeys(row["plane"] for row in of(rows, "map")))


def _maps(rows: Rows) -> list[dict[str, Any]]:
    out = []
    for plane in _planes(rows):
        text = "".join(cells_of(rows, plane))
        seconds = sum(row["seconds"] for row in of(rows, "map", plane=plane))
        shares = {_NAMES[letter]: text.count(letter) / len(text) for letter in LETTERS}
        out.append({"plane": plane, "cells": len(text), **shares, "CPU seconds": round(seconds)})
    return out


_NAMES = {"A": "A", "B": "B", "C": "C", "S": "shared", "N": "none"}


def boundary_points(rows: Rows, plane: str) -> list[tuple[float, str, list[float], list[float]]]:
    """Return for every ray of a plane where it stands, the circuit followed, positions and widths, seed by seed.

    A ray along which no circuit's cost changes has neither; nor has one on which seeds follow different circuits.
    """
    found = of(rows, "boundary")
    n_rays, place = found[0]["rays"], [known.name for known in PLANES].index(plane)
    out = []
    for ray, at in enumerate(axis(LOW, HIGH, n_rays)):
        k = place * n_rays + ray
        usable = len({row["circuits"][k] for row in found}) == 1 and all(
            row["positions"][k] is not None for row in found
        )
        columns = [[row[name][k] for row in found] if usable else [] for name in ("positions", "widths")]
        out.append((at, found[0]["circuits"][k], columns[0], columns[1]))
    return out


def _boundaries(rows: Rows) -> list[dict[str, Any]]:
    out = []
    for plane in _planes(rows):
        rays = [ray for ray in boundary_points(rows, plane) if ray[2]]
        widths = [width for ray in rays for width in ray[3]]
        spreads = [_spread(ray[2]) for ray in rays]
        if rays:
            out.append(
                {
                    "plane": plane,
                    "rays": of(rows, "boundary")[0]["rays"],
                    "with a boundary": len(rays),
                    "seeds": len(of(rows, "boundary")),
                    "width, median": median(widths),
                    "width, least": min(widths),
                    "width, largest": max(widths),
                    "width below 0.1": mean(width < _SHARP for width in widths),
                    "spread over seeds, median": median(spreads),
                    "spread over seeds, largest": max(spreads),
                }
            )
    return out


_SHARP = 0.1  # of an axis that is 4 long


def _spread(positions: Sequence[float]) -> float:
    low, high = torch.tensor(positions, dtype=torch.float64).quantile(torch.tensor([0.1, 0.9]).double()).tolist()
    return float(high - low)


def _predictions(rows: Rows, seed: int) -> list[dict[str, Any]]:
    rivals, out = rivals_of_benchmark(), []
    for box, question in (("signed", "which circuit wins"), ("positive", "which circuit costs most")):
        found = sorted(of(rows, "random", box=box), key=lambda row: row["chunk"])
        starts = torch.cat([box_starts(rivals, box, row["chunk"], row["starts"], seed) for row in found])
        field = "winners" if box == "signed" else "dominant"
        classes = torch.tensor([LETTERS.index(letter) for row in found for letter in row[field]])
        kept = classes < len(rivals)
        known, three, sizes = starts[kept], classes[kept], rivals.sizes(starts)
        line = {"box": box, "question": question}
        out += [
            _line({**line, "from": "the largest of the sizes"}, agreement(sizes[kept].argmax(1), three)),
            _line({**line, "from": "all three sizes"}, cross_validated(sizes[kept], three, seed=seed)),
            _line({**line, "from": "all coordinates"}, cross_validated(known, three, seed=seed)),
        ]
        for circuit, name in enumerate(rivals.names):
            won = (classes == circuit).long()
            line = {"box": box, "question": f"{'does' if box == 'signed' else 'is'} {name} {_VERB[box]}"}
            own = starts[:, rivals.own[circuit]]
            out += [
                _line({**line, "from": "its size"}, cross_validated(sizes[:, [circuit]], won, seed=seed)),
                _line({**line, "from": "its own coordinates"}, cross_validated(own, won, seed=seed)),
                _line({**line, "from": "all coordinates"}, cross_validated(starts, won, seed=seed)),
            ]
    return out


_VERB = {"signed": "win", "positive": "the costliest"}


def _line(line: dict[str, Any], found: Accuracy) -> dict[str, Any]:
    low, high = found.interval
    return {
        **line,
        "starts": found.count,
        "accuracy": found.value,
        "95 % from": low,
        "to": high,
        "commonest class": found.commonest,
    }


def _same(first: str, second: str) -> float:
    return mean(a == b for a, b in zip(first, second, strict=True))


def _training(rows: Rows) -> list[dict[str, Any]]:
    first = of(rows, "random", box="signed", chunk=0)[0]
    again = of(rows, "training")[0]["starts"]
    usual = {name: first[name][:again] for name in ("winners", "dominant")}
    return [
        {
            "change": row["change"],
            "starts": row["starts"],
            "same outcome": _same(row["winners"], usual["winners"]),
            "same costliest circuit": _same(row["dominant"], usual["dominant"]),
            "shared": row["winners"].count("S") / row["starts"],
            "shared before": usual["winners"].count("S") / again,
        }
        for row in of(rows, "training")
    ]


def _real(rows: Rows) -> list[dict[str, Any]]:
    models = sorted(of(rows, "real", what="model"), key=lambda row: row["start"])
    model = {field: "".join(row[field] for row in models) for field in ("winners", "dominant")}
    out = []
    for row in of(rows, "real"):
        if row["what"] == "model":
            continue
        clear = [k for k, letter in enumerate(row["winners"]) if letter in "ABC"]
        both = [k for k in clear if model["winners"][k] in "ABC"]
        out.append(
            {
                "predicted by": row["what"],
                "models": len(models),
                "same outcome": sum(a == b for a, b in zip(row["winners"], model["winners"], strict=True)),
                "predicted winners": len(clear),
                "of which the same wins": sum(row["winners"][k] == model["winners"][k] for k in clear),
                "another wins": sum(row["winners"][k] != model["winners"][k] for k in both),
                "same costliest circuit": sum(a == b for a, b in zip(row["dominant"], model["dominant"], strict=True)),
                "by chance": sum(row["dominant"].count(k) * model["dominant"].count(k) for k in "ABC") / len(models),
            }
        )
    return out

"""Realistic reports, built without a model: what the report and the figures are tested on."""

from typing import Any

from imir_lens.errors import CoordinateError
from imir_lens.report.words import describe

KINDS = ("recall", "hop", "memory", "mixed", "deep", "not_detected")

# id, role, value, attribution, loss without it in (surrogate, model), accuracy without it in (surrogate, model)
_UNITS: dict[str, list[tuple[str, str, float, float, tuple[float, float], tuple[float, float]]]] = {
    "recall": [
        ("L1H0/score/q:res/k:L0H0/same", "beta", 27.68, 3.912, (11.91, 13.2), (0.011, 0.02)),
        ("readout/via:L1H0/same", "gamma", 18.59, 3.104, (8.22, 9.61), (0.0, 0.0)),
        ("L0H0/score/q:res/k:res/offset+1", "alpha", 6.71, 2.866, (7.9, 8.47), (0.28, 0.3)),
        ("L1H0/score/q:res/k:res/same", "auxiliary", -2.04, 0.214, (0.041, 0.0452), (0.991, 0.989)),
    ],
    "hop": [
        ("readout/via:L2H0/same", "gamma", 17.1, 3.41, (8.9, 9.2), (0.01, 0.01)),
        ("L1H0/score/q:res/k:L0H0/same", "beta_1", 24.3, 3.02, (6.1, 6.6), (0.06, 0.07)),
        ("L2H0/score/q:L1H0/k:L0H0/same", "beta_2", 22.9, 2.97, (7.4, 7.7), (0.04, 0.05)),
        ("L0H0/score/q:res/k:res/offset+1", "alpha", 7.02, 2.81, (7.7, 8.1), (0.12, 0.14)),
        ("L2H0/score/q:res/k:L0H0/same", "auxiliary", -3.3, 0.31, (0.22, 0.28), (0.94, 0.93)),
    ],
    "memory": [
        ("readout/via:L0H0.L1H0/assoc", "delta_2", 4.62, 2.01, (2.2, 2.9), (0.44, 0.38)),
        ("readout/via:res/assoc", "delta_1", 2.19, 1.43, (1.1, 1.6), (0.71, 0.66)),
        ("L0H0/score/q:res/k:res/offset+0", "auxiliary", 5.2, 0.88, (1.9, 2.4), (0.52, 0.49)),
        ("L1H0/score/q:res/k:res/offset+0", "auxiliary", 4.7, 0.79, (1.2, 1.5), (0.64, 0.61)),
    ],
    "mixed": [
        ("readout/via:L1H0/same", "gamma", 14.2, 2.5, (4.1, 4.4), (0.41, 0.4)),
        ("L1H0/score/q:res/k:L0H0/same", "beta", 21.0, 2.4, (4.6, 4.7), (0.38, 0.37)),
        ("readout/via:res/assoc", "delta", 8.8, 1.7, (3.4, 3.6), (0.52, 0.5)),
        ("L0H0/score/q:res/k:res/offset+1", "alpha", 6.1, 1.6, (4.0, 4.2), (0.42, 0.42)),
        ("readout/via:const/word", "auxiliary", 0.41, -0.05, (0.06, 0.07), (0.97, 0.97)),
    ],
    "deep": [
        ("readout/via:L4H1/same", "gamma_1", 15.0, 2.9, (3.8, 4.0), (0.31, 0.3)),
        ("readout/via:L4H2/same", "gamma_2", 9.0, 1.9, (1.8, 2.0), (0.61, 0.6)),
        ("L2H0/score/q:res/k:L0H1/same", "beta_1", 25.0, 2.7, (5.2, 5.5), (0.1, 0.1)),
        ("L4H1/score/q:L2H0/k:L0H1/same", "beta_2", 19.0, 2.6, (4.1, 4.2), (0.2, 0.2)),
        ("L4H2/score/q:L2H0/k:L1H2/same", "beta_3", 12.0, 1.6, (2.1, 2.2), (0.6, 0.6)),
        ("L0H1/score/q:res/k:res/offset+1", "alpha_1", 7.0, 2.2, (6.1, 6.3), (0.1, 0.1)),
        ("L1H2/score/q:res/k:res/offset+1", "alpha_2", 5.0, 1.2, (2.2, 2.3), (0.5, 0.5)),
        ("L4H1/score/q:res/k:res/same", "auxiliary", -2.0, 0.2, (0.12, 0.14), (0.96, 0.96)),
        ("L4H1/score/q:const/k:res/word", "auxiliary", 1.1, 0.1, (0.08, 0.09), (0.97, 0.97)),
        ("readout/via:L0H1.L2H0/word>filler", "auxiliary", -0.7, 0.05, (0.03, 0.04), (0.98, 0.98)),
    ],
    "not_detected": [],
}

_MODEL = {"recall": (2, 1), "hop": (3, 1), "memory": (2, 1), "mixed": (2, 1), "deep": (5, 3), "not_detected": (2, 1)}

_VERDICT = {
    "recall": (
        "in_context",
        "stability",
        "The model recalls in context: head L0H0 looks one position back (alpha), L1H0 finds the word that follows an "
        "earlier copy of the query (beta) and copies it to the output (gamma); one auxiliary direction keeps L1H0 off "
        "the query itself.",
    ),
    "hop": (
        "in_context",
        "sufficiency and necessity",
        "The model follows two links in context: alpha in layer 0, one match in each of the layers 1 and 2, and a copy "
        "from L2H0.",
    ),
    "memory": (
        "in_weights",
        "sufficiency and necessity",
        "The model answers from its weights: the associate of the query is stored (delta) and both heads attend to the "
        "query itself; no in-context circuit was found.",
    ),
    "mixed": (
        "mixed",
        "joint ablation",
        "The model uses both: an in-context circuit (alpha, beta, gamma) and a memorised association (delta).",
    ),
    "deep": (
        "in_context",
        "sufficiency and necessity",
        "The model follows two links in context, with redundant heads in the layers 0, 1 and 4.",
    ),
    "not_detected": (
        "not_detected",
        "weights only",
        "No circuit was detected: the coordinates of this task do not carry what the model does.",
    ),
}

_EVALUATION: dict[str, dict[str, tuple[float, float] | None]] = {
    "solved": {
        "model": (0.0101, 0.998),
        "projection": (4.8e-6, 1.0),
        "circuit": (0.392, 0.967),
        "without_circuit": (7.21, 0.021),
        "bayes": (0.0, 1.0),
        "chance": (4.14, 0.0159),
    },
    "not_detected": {
        "model": (4.61, 0.019),
        "projection": (4.58, 0.0156),
        "circuit": None,
        "without_circuit": None,
        "bayes": (0.0, 1.0),
        "chance": (4.14, 0.0159),
    },
}

_PAIRS = ("k3 v9", "k7 v2", "k1 v4", "k5 v8")
TOKENS = ["·", "k3", "v9", "·", "k7", "v2", "·", "·", "k1", "v4", "k5", "v8", "·", "k7"]


def _pattern(weights: dict[int, dict[int, float]], diagonal: float) -> list[list[float]]:
    """A causal pattern: the given sharp entries, the diagonal, and the rest spread evenly; rows sum to one."""
    n, rows = len(TOKENS), []
    for i in range(n):
        row = [0.0] * n
        sharp = {j: w for j, w in weights.get(i, {}).items() if j <= i} or {i: diagonal if i else 1.0}
        rest = 1 - sum(sharp.values())
        for j in range(i + 1):
            row[j] = round(sharp.get(j, 0.0) + rest / (i + 1), 3)
        rows.append(row)
    return rows


def example(heads: list[str]) -> dict[str, Any]:
    """One context, with a one-back pattern for the first head and a match of the query for the last."""
    n = len(TOKENS)
    back = _pattern({i: {i - 1: 0.97} for i in range(1, n)}, 1.0)
    match = _pattern({13: {5: 0.96}, 4: {0: 0.3}, 10: {9: 0.4}}, 0.1)
    patterns = {head: match if k == len(heads) - 1 else back for k, head in enumerate(heads)}
    return {
        "tokens": list(TOKENS),
        "query": n - 1,
        "target": "v2",
        "prediction": "v2",
        "probability": 0.997,
        "attention": patterns,
    }


def _unit(row: tuple[Any, ...]) -> dict[str, Any]:
    identity, role, value, _, loss, accuracy = row
    try:
        words = describe(identity, role, value)
    except CoordinateError:
        words = "unreadable"
    return {
        "id": identity,
        "role": role,
        "value": value,
        "words": words,
        "loss_if_removed": {"surrogate": loss[0], "model": loss[1]},
        "accuracy_if_removed": {"surrogate": accuracy[0], "model": accuracy[1]},
    }


def _roles(units: list[dict[str, Any]]) -> list[dict[str, Any]]:
    roles: dict[str, list[dict[str, Any]]] = {}
    for unit in units:
        roles.setdefault(unit["role"].partition("_")[0], []).append(unit)
    return [
        {
            "role": role,
            "units": [unit["id"] for unit in members],
            "loss_if_removed": {
                side: max(unit["loss_if_removed"][side] for unit in members) for side in ("surrogate", "model")
            },
            "accuracy_if_removed": {
                side: min(unit["accuracy_if_removed"][side] for unit in members) for side in ("surrogate", "model")
            },
        }
        for role, members in roles.items()
    ]


def _coordinates(kind: str, layers: int, heads: int) -> list[dict[str, Any]]:
    inside = [
        {"id": row[0], "role": row[1], "value": row[2], "attribution": row[3], "in_circuit": True}
        for row in _UNITS[kind]
    ]
    outside = []
    for k in range(36):
        head = f"L{k % layers}H{k % heads}"
        outside.append(
            {
                "id": f"{head}/score/q:res/k:res/offset{k + 2:+d}",
                "role": "auxiliary",
                "value": round((-1) ** k * 1.9 / (k + 1), 4),
                "attribution": round((-1) ** (k % 3) * 0.17 / (k + 1), 5),
                "in_circuit": False,
            }
        )
    return sorted([*inside, *outside], key=lambda c: -abs(c["attribution"]))


def sample_report(kind: str = "recall") -> dict[str, Any]:
    """A fresh report; `kind` is one of `KINDS`."""
    layers, heads = _MODEL[kind]
    mechanism, level, text = _VERDICT[kind]
    units = [_unit(row) for row in _UNITS[kind]]
    numbers = _EVALUATION.get(kind, _EVALUATION["solved"])
    found = kind != "not_detected"
    used = sorted(
        {part[:4] for u in units for part in u["id"].replace(":", "/").replace(".", "/").split("/") if "H" in part}
    )
    names = used or [f"L{layer}H0" for layer in range(layers)]
    total = {"deep": 5120, "hop": 1146}.get(kind, 286)
    return {
        "schema": "imir-lens/report/1",
        "created_with": {"imir_lens": "0.1.0", "transformer_lens": "4.3.0", "torch": "2.13.0"},
        "command": f"imir-lens analyze {kind}_2l.pt --task recall --set pairs=8 --contexts 512 --seed 0 --out report",
        "seed": 0,
        "model": {
            "source": f"{kind}_2l.pt",
            "sha256": "9f2c1a7de0b35a64" * 4,
            "family": "HookedTransformer file",
            "n_layers": layers,
            "n_heads": heads,
            "d_model": 128,
            "d_head": 64,
            "d_vocab": 64,
            "n_ctx": 24,
            "positions": "standard",
            "normalization": None,
            "attn_only": True,
        },
        "task": {
            "name": "hop" if kind in ("hop", "deep") else "recall",
            "knobs": {"vocab": 64, "pairs": 8, "length": 24, "f_r": 1.0, "f_v": 0.0, "burstiness": 1},
        },
        "evaluation": {
            "contexts": 512,
            "search_seed": 0,
            "test_seed": 1,
            **{name: pair and {"loss": pair[0], "accuracy": pair[1]} for name, pair in numbers.items()},
        },
        "search": {"paths": 3, "paths_cut": 0, "bound": 0.0, "coordinates_total": total},
        "ablation": "the coordinate's own term taken out of the score (a tilt of the pattern) or out of the logits",
        "coordinates": _coordinates(kind, layers, heads),
        "circuit": {
            "budget": 0.01,
            "evaluations": 16 if found else 9,
            "gradient_passes": 5,
            "seconds": 0.82,
            "units": units,
            "roles": _roles(units),
            "faithfulness": 0.947 if found else None,
            "completeness": 0.99 if found else None,
            "minimal": found,
            "stability": {"bootstrap_jaccard": 0.97 if found else None, "n": 20 if found else 0},
        },
        "heads": [
            {
                "layer": layer,
                "head": head,
                "score_r2": round(0.94 - 0.07 * layer - 0.1 * head, 3),
                "offset": 1 if layer == 0 else None,
                "copy_mass": 0.972 if layer == 0 else 0.061,
                "match": 0.02 if layer == 0 else 0.957,
                "copying": 0.11 if layer == 0 else 0.981,
                "labels": ["previous token"] if layer == 0 else ["induction"],
            }
            for layer in range(layers)
            for head in range(heads)
        ],
        "unexplained": {
            "score_variance": 0.083,
            "readout_variance": 0.121,
            "per_head": {f"L{layer}H{head}": 0.06 + 0.07 * layer for layer in range(layers) for head in range(heads)},
        },
        "verdict": {
            "mechanism": mechanism,
            "evidence_level": level,
            "text": text,
            "caveats": [
                "One seed: agreement over training seeds was not tested.",
                "12.1 % of the readout's variance is not described by the coordinates.",
            ],
        },
        "examples": [example(names[:8]), example(names[:8])] if found else [],
    }

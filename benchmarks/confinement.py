"""(h) How much of the gradient leaves the manifold's span: exactly, for short sets of shifts, by batch size, elsewhere.

A residual is the norm outside the span over the whole norm, of the scores' matrices (both heads together) and of the
readout, for two layers of one head on `recall`. Weights are random ones moved onto the span, unless it says otherwise.
Exact rows enumerate every context; T is every token relation, classes included, M^k the cyclic shifts by k.
"""

from collections.abc import Callable, Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import torch

from benchmarks.partial import PartialRows
from imir_lens.dynamics.confinement import Confinement, measure_confinement
from imir_lens.dynamics.exact_contexts import WeightedContexts, enumerate_contexts
from imir_lens.dynamics.population_gradient import in_double, population_gradient
from imir_lens.dynamics.power_law import fit_power_law
from imir_lens.dynamics.span import Span, invariant_span, merged_weights, moved_onto, named_span, stream_contents
from imir_lens.lens_model import open_model
from imir_lens.manifold import Energy
from imir_lens.models.disentangled import DisentangledConfig, DisentangledTransformer
from imir_lens.models.transformer import ImirTransformer
from imir_lens.tasks import make_task
from imir_lens.tasks.recall import Recall
from imir_lens.training.recipes import default_config

Row = dict[str, Any]
DATA = Path(__file__).parent.parent / "tests" / "data"
TASKS = {
    "rare words": Recall(vocab=5, pairs=1, length=5),
    "common words": Recall(vocab=5, pairs=1, length=5, f_r=0.0),
    "both": Recall(vocab=9, pairs=1, length=5, f_r=0.5, rare=4),
}
_SHIFTS = "T and all M^k"
# name → (positions, options of the model, span, whether the weights are on it)
SETTINGS: dict[str, tuple[str, dict[str, Any], str, bool]] = {
    "centred, concatenated": ("ring", {}, _SHIFTS, True),
    "centred, block-shifted": ("ring", {"stream": "add"}, _SHIFTS, True),
    "uncentred": ("ring", {"embedding": "onehot"}, _SHIFTS, True),
    "uncentred, class constants too": ("ring", {"embedding": "onehot"}, "all orbits", True),
    "centred, dense OV": ("ring", {"stream": "add", "dense": True}, _SHIFTS, True),
    "causal mask, shifts": ("line", {}, _SHIFTS, True),
    "causal mask, all pairs of positions": ("line", {}, "all orbits", True),
    "start off the span": ("ring", {}, _SHIFTS, False),
    "the paper's {I, C} and {I, M}": ("ring", {}, "T = {I, C}, P = {I, M}", True),
}
# contexts of one kind: how many pairs they have at each length, and whether they are enumerated
SHAPES: dict[str, tuple[list[tuple[int, int]], bool]] = {
    "one pair": ([(1, 6), (1, 8), (1, 12), (1, 16), (1, 24), (1, 32)], True),
    "two pairs": ([(2, 8), (2, 10), (2, 12), (2, 16)], True),
    "a quarter of the positions": ([(1, 9), (2, 17), (3, 25), (4, 33), (5, 41)], False),
    "all positions": ([(4, 9), (6, 13), (8, 17), (12, 25), (16, 33)], False),
}
_RESAMPLES = 500
BATCHES = (64, 256, 1024, 4096, 16384)


def run(*, small: bool = False, seed: int = 0) -> list[Row]:
    """Measure everything; small: a few of each."""
    kept = PartialRows() if small else PartialRows.of("confinement")
    seeds = range(seed, seed + (1 if small else 5))
    jobs: list[tuple[Row, Callable[[], Row]]] = []
    for name in SETTINGS:
        for task in TASKS if not small else list(TASKS)[:1]:
            for own in seeds:
                key = {"part": "exact", "setting": name, "task": task, "seed": own}
                jobs.append((key, lambda n=name, t=task, s=own: _exact(n, TASKS[t], s)))  # type: ignore[misc]
    drawn = 512 if small else 8192
    for name, (sizes, exact) in SHAPES.items():
        if small and name not in ("one pair", "all positions"):
            continue
        for pairs, length in sizes[:2] if small else sizes:
            for own in seeds:
                key = {"part": "short set", "contexts hold": name, "pairs": pairs, "positions": length, "seed": own}
                jobs.append((key, lambda p=pairs, n=length, c=None if exact else drawn, s=own: _short_set(p, n, s, c)))  # type: ignore[misc]
    for contexts in BATCHES[:2] if small else BATCHES:
        for own in range(seed, seed + (2 if small else 8)):
            key = {"part": "batch", "contexts": contexts, "seed": own}
            jobs.append((key, lambda c=contexts, s=own: _batch(c, s)))  # type: ignore[misc]
    for name in ("at initialisation", "trained"):
        for kind in ("free", "induced"):
            key = {"part": "ordinary", "model": name, "kind": kind, "seed": seed}
            jobs.append((key, lambda m=name, k=kind: _ordinary(m, k, seed, 256 if small else 8192)))  # type: ignore[misc]
    return [kept.get(key) or kept.add(key, {**key, **job()}) for key, job in jobs]


def tables(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Sum the rows up."""
    found: dict[str, list[Row]] = {"exact": [], "short set of shifts": [], "by batch size": [], "ordinary models": []}
    exact = [row for row in rows if row["part"] == "exact"]
    for name in dict.fromkeys(row["setting"] for row in exact):
        mine = [row for row in exact if row["setting"] == name]
        scores, readout = ([row[part] for row in mine] for part in ("scores", "readout"))
        found["exact"].append(
            {
                "setting": name,
                "positions": SETTINGS[name][0],
                "span": SETTINGS[name][2],
                "runs": len(mine),
                "scores, least": min(scores),
                "scores, most": max(scores),
                "readout, least": min(readout),
                "readout, most": max(readout),
            }
        )
    short = [row for row in rows if row["part"] == "short set"]
    for name in dict.fromkeys(row["contexts hold"] for row in short):
        mine = [row for row in short if row["contexts hold"] == name]
        sizes = sorted({row["positions"] for row in mine})
        for part in ("L0H0", "L1H0"):
            by_size = [[row[part] for row in mine if row["positions"] == size] for size in sizes]
            law = fit_power_law([float(size) for size in sizes], by_size, resamples=_RESAMPLES)
            found["short set of shifts"].append(
                {
                    "words at": name,
                    "matrix": part,
                    "positions": f"{sizes[0]} to {sizes[-1]}",
                    "residual, first": sum(by_size[0]) / len(by_size[0]),
                    "residual, last": sum(by_size[-1]) / len(by_size[-1]),
                    "slope": law.exponent,
                    "slope, low": law.low,
                    "slope, high": law.high,
                    "local slopes": f"{law.local_low:.2f} to {law.local_high:.2f}",
                    "runs": len(mine),
                }
            )
    batch = [row for row in rows if row["part"] == "batch"]
    sizes = sorted({row["contexts"] for row in batch})
    # Noise adds to the whole norm too, so the residual of a small sample saturates at 1; outside over inside does not.
    by_size = [[_outside_over_inside(row["residual"]) for row in batch if row["contexts"] == size] for size in sizes]
    law = fit_power_law([float(size) for size in sizes], by_size, resamples=_RESAMPLES)
    for size, own in zip(sizes, by_size, strict=True):
        found["by batch size"].append(
            {
                "contexts": size,
                "residual": sum(row["residual"] for row in batch if row["contexts"] == size) / len(own),
                "outside / inside": sum(own) / len(own),
                "times sqrt(contexts)": sum(own) / len(own) * sqrt(size),
                "slope": law.exponent,
                "slope, low": law.low,
                "slope, high": law.high,
                "runs": len(own),
            }
        )
    found["ordinary models"] = [
        {name: row[name] for name in ("model", "kind", "L0H0", "L1H0", "chance, L1H0", "readout", "not projected")}
        for row in rows
        if row["part"] == "ordinary"
    ]
    return found


def _outside_over_inside(residual: float) -> float:
    return residual / sqrt(1 - residual**2)


def _classes(task: Recall) -> list[str]:
    classes = task.relations.classes
    return [*task.relations.matchings, *(f"{a}>{b}" for a in classes for b in classes)]


def _random(task: Recall, seed: int, *, size: float = 0.3, **options: Any) -> DisentangledTransformer:
    options = {"embedding": "centred", "attention_dir": "bidirectional", **options}
    if options.pop("dense", False):
        options["d_model"] = 2 * (task.d_vocab + task.n_positions)
    config = DisentangledConfig(d_vocab=task.d_vocab, n_ctx=task.n_positions, n_layers=2, init_std=size, **options)
    return in_double(DisentangledTransformer(config, generator=torch.Generator().manual_seed(seed)))


def _exact(name: str, task: Recall, seed: int) -> Row:
    positions, options, span_name, on = SETTINGS[name]
    ring = positions == "ring"
    contexts = enumerate_contexts(task)
    if span_name == "all orbits":
        span = invariant_span(task, cyclic=ring)
    elif span_name == _SHIFTS:
        span = _all_shifts(task)
    else:
        span = named_span(task)
    model = _random(task, seed, attention_dir="bidirectional" if ring else "causal", **options)
    model = moved_onto(model, span) if on else model
    return _row(measure_confinement(model, contexts.on_a_ring() if ring else contexts, span))


def _all_shifts(task: Recall) -> Span:
    """All cyclic shifts, and the orbits of pairs of tokens: where words are of two kinds, `same` is two relations."""
    span = invariant_span(task, cyclic=True)
    vocab = task.d_vocab
    mixed = span.relations[:, :vocab, vocab:].flatten(1).any(1) | span.relations[:, vocab:, :vocab].flatten(1).any(1)
    return Span(span.relations[~mixed], vocab)


def _row(found: Confinement) -> Row:
    scores = [part for name, part in found.energies.items() if name != "readout"]
    whole = Confinement({"scores": _sum(scores)}, found.contexts)
    return {
        "contexts": found.contexts,
        "scores": whole.residual,
        "readout": found.residuals["readout"],
        "residual": found.residual,
        "dimension": found.total.dimension,
        "entries": found.total.entries,
    }


def _sum(parts: Sequence[Energy]) -> Energy:
    return Energy(
        sum(p.on for p in parts),
        sum(p.off for p in parts),
        sum(p.dimension for p in parts),
        sum(p.entries for p in parts),
    )


def _short_set(pairs: int, length: int, seed: int, drawn: int | None) -> Row:
    """Residual of P = {I, M}, with all token relations, at random small coefficients in that span.

    Where contexts are too many some are drawn, and the gradient is first projected on the invariant span: the
    population's lies there, so that only noise is lost.
    """
    task = Recall(vocab=5 if drawn is None else 35, pairs=pairs, length=length)
    span = named_span(task, tokens=_classes(task))
    model = _with_coefficients(_random(task, seed, size=0.0), span, seed, size=0.05)
    if drawn is None:
        found = measure_confinement(model, enumerate_contexts(task).on_a_ring(), span)
        return {**found.residuals, "contexts": found.contexts}
    generator = torch.Generator().manual_seed(seed)
    contexts = WeightedContexts.sample_of(task.sample(drawn, generator)).turned_at_random(generator)
    gradient = merged_weights(model, population_gradient(model, contexts))
    _, kept = invariant_span(task, cyclic=True).project(stream_contents(model), gradient, 1)
    energies, _ = span.project(stream_contents(model), kept, 1)
    return {**Confinement(energies, len(contexts)).residuals, "contexts": len(contexts)}


def _with_coefficients(
    model: DisentangledTransformer, span: Span, seed: int, *, size: float
) -> DisentangledTransformer:
    """Normal coefficients, the same numbers whatever the length of the contexts."""
    generator, contents = torch.Generator().manual_seed(seed), stream_contents(model)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64) * size

    columns = span.relations[:, :, : span.d_vocab]
    columns = columns[columns.flatten(1).any(1)]
    with torch.no_grad():
        for layer, content in enumerate(contents[:-1]):
            c = drawn(len(content), len(content), len(span.relations))
            block = torch.einsum("pqr,rab->paqb", c, span.relations)
            model.attention(layer).W_KQ[0] = torch.einsum("pad,paqb,qbe->de", content, block, content)
        c = drawn(len(contents[-1]), len(columns))
        model.unembed.W_U.copy_(torch.einsum("pad,pr,rax->dx", contents[-1], c, columns))
    return model


def _batch(contexts: int, seed: int) -> Row:
    task = TASKS["rare words"]
    span = invariant_span(task, cyclic=True)
    model = moved_onto(_random(task, 0), span)
    generator = torch.Generator().manual_seed(seed)
    drawn = WeightedContexts.sample_of(task.sample(contexts, generator)).turned_at_random(generator)
    return {"residual": measure_confinement(model, drawn, span).residual}


def _ordinary(name: str, kind: str, seed: int, contexts: int) -> Row:
    """An ordinary 2-layer model with W_Q and W_K apart, causal; every shift it can use, and all token relations."""
    task = make_task("recall")
    if name == "trained":
        model: Any = open_model(DATA / "recall_2l.pt").model
    else:
        model = ImirTransformer(default_config(task), generator=torch.Generator().manual_seed(seed))
    span = named_span(task, tokens=_classes(task), offsets=range(task.n_positions), cyclic=False)
    found = measure_confinement(model, task.sample(contexts, torch.Generator().manual_seed(seed)), span, kind=kind)
    second = found.energies["L1H0"]
    return {
        **found.residuals,
        "chance, L1H0": sqrt(1 - second.dimension / second.entries),
        "not projected": found.left_out,
        "contexts": contexts,
    }

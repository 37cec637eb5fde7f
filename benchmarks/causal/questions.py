"""What reviewers asked: fewer heads than examples, no bias at the start, and the domain of the second layer."""

from functools import partial
from typing import Any

import torch

from benchmarks.causal.figures import behaviour_figures, held_out, matched, parameter_figures
from benchmarks.causal.keeping import kept_row
from benchmarks.partial import PartialRows
from imir_lens.causal.attention_match import match_attention
from imir_lens.causal.behaviour import head_attention
from imir_lens.causal.config import CausalConfig
from imir_lens.causal.training import train_causal
from imir_lens.causal.transformer import CausalTransformer
from imir_lens.tasks.causal_tree import CausalTree
from imir_lens.tasks.episodes import Episodes

HEADS, START, DOMAIN = "fewer heads", "start", "domain"
OPTIONS: dict[str, Any] = {"steps": 1024, "batch": 128}
STARTS: dict[str, dict[str, Any]] = {
    "both biases": {},
    "no position bias": {"same_position": 0.0},
    "no example bias": {"own_example": 0.0},
    "no bias": {"same_position": 0.0, "own_example": 0.0},
}


class AllOthers(CausalTree):
    """The causal tree, but the second layer may attend to later positions of the query too."""

    def sample_episodes(self, contexts: int, generator: torch.Generator, *, n_examples: int | None = None) -> Episodes:
        """Draw episodes whose candidates are all other positions; the root has none."""
        return with_all_others(super().sample_episodes(contexts, generator, n_examples=n_examples))


def with_all_others(episodes: Episodes) -> Episodes:
    """Return the episodes with all other positions as candidates."""
    candidates = ~torch.eye(episodes.n_nodes, dtype=torch.bool)
    candidates[0] = False
    return Episodes(episodes.values, episodes.parents, candidates)


def rows(*, small: bool, seed: int, kept: PartialRows) -> list[dict[str, Any]]:
    """All three, with several seeds."""
    sizes = {"d": 3, "positions": 4, "examples": 2} if small else {"d": 5, "positions": 10, "examples": 5}
    options = {"steps": 50, "batch": 32} if small else OPTIONS
    contexts = 64 if small else 4096
    task, found = CausalTree(**sizes), []
    for one in range(seed, seed + (1 if small else 2)):
        about = {**sizes, **options, "seed": one}
        for heads in (1, 2) if small else (1, 2, 3, 5, 8):
            key = {"heads": heads, **about}
            found.append(kept_row(kept, HEADS, key, partial(_heads, task, heads, options, one, contexts)))
        for name, start in STARTS.items():
            key = {"start": name, **about}
            found.append(kept_row(kept, START, key, partial(_start, task, start, options, one, contexts)))
        for domain in ("earlier positions", "all other positions"):
            key = {"trained on": domain, **about}
            found.append(kept_row(kept, DOMAIN, key, partial(_domain, task, domain, options, one, contexts)))
    return found


def _measured(model: CausalTransformer, task: CausalTree, contexts: int) -> dict[str, Any]:
    return {**behaviour_figures(model, task, contexts), **parameter_figures(model, task)}


def _heads(task: CausalTree, heads: int, options: dict[str, Any], seed: int, contexts: int) -> dict[str, Any]:
    """Beside BMA from all examples: BMA from the K nearest, the best of those who leave examples out."""
    config = CausalConfig(task.d, task.positions, task.examples, n_heads=heads)
    found = _measured(train_causal(task, config, seed=seed, **options).model, task, contexts)
    some = held_out(task, contexts)
    fewer = some.keep_examples(torch.arange(max(0, task.examples - heads), task.examples))
    posterior = task.posterior(fewer)
    return {**found, "L_pa, BMA of K examples": match_attention(posterior, posterior, fewer).parent_loss}


def _start(
    task: CausalTree, start: dict[str, Any], options: dict[str, Any], seed: int, contexts: int
) -> dict[str, Any]:
    return _measured(train_causal(task, seed=seed, **start, **options).model, task, contexts)


def _domain(task: CausalTree, domain: str, options: dict[str, Any], seed: int, contexts: int) -> dict[str, Any]:
    """Test on earlier positions, whatever it was trained on; and where attention goes when it may go anywhere."""
    taught = task if domain == "earlier positions" else AllOthers(**task.knobs)
    model = train_causal(taught, seed=seed, **options).model
    episodes = held_out(task, contexts)
    anywhere = with_all_others(episodes)
    (attention,) = head_attention(model, task, anywhere)
    earlier = attention.weights * episodes.candidates
    chosen = earlier.gather(2, episodes.parents.clamp(min=0).unsqueeze(2)).squeeze(2)[:, episodes.asked]
    return {
        **_measured(model, task, contexts),
        "mass on earlier, when free": float(earlier.sum(2)[:, episodes.asked].mean()),
        "mass on the parent, when free": float(chosen.mean()),
        "mass on the parent": _parent_mass(model, task, episodes),
        "total variation, restricted": matched(model, task, episodes).total_variation,
    }


def _parent_mass(model: CausalTransformer, task: CausalTree, episodes: Episodes) -> float:
    (attention,) = head_attention(model, task, episodes)
    chosen = attention.weights.gather(2, episodes.parents.clamp(min=0).unsqueeze(2)).squeeze(2)
    return float(chosen[:, episodes.asked].mean())

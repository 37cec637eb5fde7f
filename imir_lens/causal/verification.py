"""Verification in three tiers.

1. Behaviour: does it predict by what the examples tell, and is a head's attention the posterior over parents?
2. Parameters: do its weights compare tokens by log pi, each example with itself?
3. Mechanism: which heads bring the examples, and does L_pa change by what the posterior says when they go?
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from imir_lens.causal.agreement import Agreement, agreement, predicted_ablations
from imir_lens.causal.behaviour import (
    CurvePoint,
    Losses,
    compare_losses,
    examples_curve,
    follows_swaps,
    head_attention,
    kl_share,
    match_heads,
    nearest_to_posterior,
    uniform_kl,
)
from imir_lens.causal.capture import BmaHeadMatch, CopyerHead, capture_copyers
from imir_lens.causal.kernel_evidence import KernelEvidence, kernel_evidence
from imir_lens.causal.leave_out import LeaveOut
from imir_lens.causal.opening import OpenedModel, open_for
from imir_lens.causal.parent_attention import ParentAttention
from imir_lens.causal.transformer import CausalTransformer
from imir_lens.causal.verification_verdict import BmaVerdict, judge_bma, make_checks
from imir_lens.errors import ImirError, OptionError, UnsupportedModelError
from imir_lens.lens_model import LensModel
from imir_lens.tasks.episodes import CausalTask, Episodes

TEST_EXAMPLES = (1, 2, 3, 5, 10, 20)  # L' of the curve, besides the task's own L
_MOST_CONTEXTS = 100_000
_ABLATION_CONTEXTS = 256  # each removal is two runs
_COPYER_CONTEXTS = 128  # copyers of an ordinary transformer look at positions: few contexts tell


@dataclass(frozen=True, eq=False)
class Verification:
    """All that a verification found; a report is made of it.

    Attributes:
        opened: the model.
        task: the task.
        seed: of all episodes: the test uses generator seed `seed`, the curve `seed + 1`.
        episodes: the test episodes.
        losses: tier 1: predictions.
        matches: tier 1: every head's attention beside the posterior.
        reader: the attention of the head nearest to it.
        candidate_kl: `KL(posterior ‖ uniform)`: what the examples tell about the parent, in nats.
        follows: how far the reader follows when half of the examples are exchanged; see `behaviour.follows_swaps`.
        curve: L_pa over the number of examples.
        kernel: tier 2; None where there is no kernel, or it cannot be read.
        copyers: tier 3: where heads look.
        ablations: tier 3: removals.
        agreement: how well these were predicted.
        ablation_contexts: how many contexts they were measured on.
        verdict: the mechanism and its evidence level.
    """

    opened: OpenedModel
    task: CausalTask
    seed: int
    episodes: Episodes
    losses: Losses
    matches: tuple[BmaHeadMatch, ...]
    reader: ParentAttention
    candidate_kl: float
    follows: float | None
    curve: tuple[CurvePoint, ...]
    kernel: KernelEvidence | None
    copyers: tuple[CopyerHead, ...]
    ablations: tuple[LeaveOut, ...]
    agreement: Agreement | None
    ablation_contexts: int
    verdict: BmaVerdict

    @property
    def match(self) -> BmaHeadMatch:
        """The reader's attention beside the posterior."""
        return next(found for found in self.matches if found.head == self.reader.head)

    @property
    def posterior_share(self) -> float | None:
        """The share of the information on the parent that the reader conveys."""
        return kl_share(self.match.match.kl, self.candidate_kl)


def run_verification(
    model: nn.Module | LensModel | OpenedModel,
    task: CausalTask,
    *,
    contexts: int = 512,
    seed: int = 0,
    test_examples: Sequence[int] | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> Verification:
    """Verify whether a model infers the graph by Bayesian averaging.

    Args:
        model: a CausalTransformer or an ordinary transformer on the flattened sequence.
        task: the task, with the kernel that the model was trained on.
        contexts: number of test episodes.
        seed: of all episodes.
        test_examples: numbers of examples for the curve of L_pa; 1, 2, 3, 5, 10, 20 and the task's own by default.
            An ordinary transformer takes the task's own only: its positions are fixed.
        progress: called with the name of each step as it starts.

    Raises:
        OptionError: when contexts or test_examples are out of range.
        ImirError: when the model does not fit the task; see `open_for`.
    """
    if not 1 <= contexts <= _MOST_CONTEXTS:
        raise OptionError(f"contexts must lie between 1 and {_MOST_CONTEXTS}, got {contexts}")
    opened = model if isinstance(model, OpenedModel) else open_for(model, task)
    network = opened.model
    episodes = task.sample_episodes(contexts, torch.Generator().manual_seed(seed))
    counts = _counts(test_examples, own=episodes.n_examples, causal=opened.causal)

    progress("compare attention with the posterior")
    losses = compare_losses(network, task, episodes)
    posterior = task.posterior(episodes)
    attention = head_attention(network, task, episodes)
    matches = match_heads(attention, posterior, episodes)
    reader = next(found for found in attention if found.head == nearest_to_posterior(matches))
    match = next(found for found in matches if found.head == reader.head)
    even = uniform_kl(posterior, episodes)
    follows = follows_swaps(network, task, episodes, reader.head)

    progress("vary the number of examples")
    curve = examples_curve(network, task, counts, contexts=contexts, seed=seed + 1, reader=reader.head)

    progress("read the kernel off the weights")
    copyers = capture_copyers(network, task, episodes[:_COPYER_CONTEXTS])
    caveats = _caveats(opened, episodes, copyers)
    kernel = None
    if opened.causal or reader.head.layer > 0:
        try:
            kernel = kernel_evidence(network, task, copyers, reader.head, seed=seed)
        except ImirError as error:
            caveats.append(f"The kernel cannot be read off the weights: {error}.")

    progress("leave out examples, heads and relations")
    some = episodes[:_ABLATION_CONTEXTS]
    ablations = predicted_ablations(network, task, some, copyers, reader.head)
    agreed, share = agreement(ablations), kl_share(match.match.kl, even)
    checks = make_checks(
        losses,
        posterior_share=share,
        candidate_mass=match.candidate_mass,
        follows=follows,
        kernel=kernel,
        n_examples=episodes.n_examples,
        agreement=agreed,
    )
    verdict = judge_bma(
        checks,
        reader=str(reader.head),
        match=match.match,
        posterior_share=share,
        losses=losses,
        kernel=kernel,
        agreement=agreed,
        contexts=contexts,
        caveats=caveats,
    )
    return Verification(
        opened=opened,
        task=task,
        seed=seed,
        episodes=episodes,
        losses=losses,
        matches=matches,
        reader=reader,
        candidate_kl=even,
        follows=follows,
        curve=curve,
        kernel=kernel,
        copyers=copyers,
        ablations=ablations,
        agreement=agreed,
        ablation_contexts=len(some),
        verdict=verdict,
    )


def _counts(wanted: Sequence[int] | None, *, own: int, causal: bool) -> list[int]:
    """Return the numbers of examples of the curve."""
    if wanted is None:
        return sorted({*TEST_EXAMPLES, own}) if causal else [own]
    if bad := [count for count in wanted if count < 1]:
        raise OptionError(f"test examples must be at least 1: found {bad[0]}")
    if not causal and (other := [count for count in wanted if count != own]):
        raise UnsupportedModelError(
            f"an ordinary transformer's positions are fixed: it cannot be tested with {other[0]} examples, only with "
            f"the {own} of the task"
        )
    return sorted({*wanted, own})


def _caveats(opened: OpenedModel, episodes: Episodes, copyers: Sequence[CopyerHead]) -> list[str]:
    """Say what the measurements cannot tell."""
    notes, examples = [], episodes.n_examples
    if isinstance(opened.model, CausalTransformer):
        heads = opened.model.cfg.n_heads
        if heads < examples:
            notes.append(f"The model has {heads} copyer heads for {examples} examples: they cannot all be told apart.")
        return notes
    notes.append(
        "In an ordinary transformer attention is restricted to candidates and scaled to sum to 1 before it is compared."
    )
    length, room = (examples + 1) * episodes.n_nodes, int(opened.info["sizes"].get("n_ctx") or 0)
    if room > length:
        notes.append(
            f"The model has room for {room} positions, the task uses {length}: if it was trained on longer episodes, "
            "set the task's knobs to those."
        )
    if not any(copyer.label for copyer in copyers):
        notes.append("No head copies from one fixed place of the examples.")
    return notes

"""`heads_atlas`: from a checkpoint, or a live model, to the table of its heads."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from imir_lens.atlas.check import causal_check
from imir_lens.atlas.explained import fit_scores
from imir_lens.atlas.labels import EFFECT, SHARE, thresholds
from imir_lens.atlas.matching import BOUND
from imir_lens.atlas.patterns import CONTEXTS, LENGTH, pattern_masses, repeated_tokens
from imir_lens.atlas.scores import weight_scores
from imir_lens.atlas.table import atlas_data
from imir_lens.errors import OptionError
from imir_lens.lens_model import LensModel, open_model
from imir_lens.report.atlas_document import Atlas

CHECK_CONTEXTS = 4


def heads_atlas(
    model: nn.Module | str | Path | LensModel,
    *,
    data: bool = False,
    check: int = 0,
    check_every: bool = False,
    relation: Sequence[tuple[int, int]] | None = None,
    contexts: int = CONTEXTS,
    length: int = LENGTH,
    bound: float = BOUND,
    effect: float = EFFECT,
    share: float = SHARE,
    seed: int = 0,
    config: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    device: str | torch.device | None = None,
    command: str | None = None,
    progress: Callable[[str, float], None] = lambda step, done: None,
) -> Atlas:
    """Say what every head of a model does: from its weights and, if asked, from its patterns and by removal.

    Args:
        model: a checkpoint path or live model as in `open_model`, or an opened one.
        data: also measure patterns on repeated random tokens.
        check: remove the match coordinates of this many top heads, and of as many random ones; implies `data`.
        check_every: remove every head one by one, too.
        relation: pairs of token ids (read, predicted), for the `assoc` scores.
        contexts: of repeated tokens.
        length: tokens before the repetition.
        bound: least attention one back, by its kernel, of an upstream head that is looked through one by one.
        effect: least z of a label from the weights.
        share: least attention of a label from patterns.
        seed: of the repeated tokens and the random heads.
        config: for a path without a config: a JSON file.
        overrides: for a path: single config fields.
        device: where to run.
        command: what to print as the origin (default: this call).
        progress: told the step and the share of it that is done.

    Returns:
        The atlas: `atlas.heads`, `atlas.labelled("induction")`, `atlas.save(directory)`.

    Raises:
        ImirError: of the kind that names the fault; see `open_model`, `repeated_tokens` and `causal_check`.
    """
    if not (0 <= bound <= 1 and effect > 0 and 0 < share <= 1):
        raise OptionError(
            f"bound={bound}, effect={effect}, share={share}: expected 0 <= bound <= 1, effect > 0, 0 < share <= 1"
        )
    if check < 0 or (check_every and not check):
        raise OptionError(f"check={check}: expected a number of heads, at least 1 with check_every")
    lens = (
        model if isinstance(model, LensModel) else open_model(model, config=config, overrides=overrides, device=device)
    )
    pairs = None if relation is None else relation_tensor(relation, lens)
    scores = weight_scores(lens, relation=pairs, bound=bound, progress=progress)
    masses, fit, checked, tokens = None, None, None, None
    if data or check:
        tokens = repeated_tokens(lens, contexts=contexts, length=length, seed=seed)
        masses = pattern_masses(lens, tokens, progress=progress)
        fit = fit_scores(lens, scores, tokens[: max(1, len(tokens) // 4)], progress=progress)
    if check and fit is not None:
        fresh = repeated_tokens(lens, contexts=min(contexts, CHECK_CONTEXTS), length=length, seed=seed + 1)
        checked = causal_check(lens, scores, fresh, fit, count=check, every=check_every, seed=seed, progress=progress)
    needed = thresholds(lens.weights.n_layers * lens.weights.n_heads, effect=effect, share=share)
    call = f"imir_lens.heads_atlas({lens.info['source']!r}, data={data}, check={check}, seed={seed})"
    return Atlas(
        atlas_data(
            lens,
            scores,
            needed,
            seed=seed,
            command=command or call,
            relation=pairs,
            masses=masses,
            fit=fit,
            check=checked,
            tokens=tokens,
        )
    )


def relation_tensor(relation: Sequence[tuple[int, int]], lens: LensModel) -> Int[Tensor, "pair 2"]:
    """Return a relation's pairs of token ids.

    Raises:
        OptionError: when there are none, or an id is not one of the model's.
    """
    pairs = torch.as_tensor([tuple(pair) for pair in relation], device=lens.device)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype != torch.int64:
        raise OptionError(
            "expected a relation of at least one pair of token ids (read, predicted), found something else"
        )
    if int(pairs.min()) < 0 or int(pairs.max()) >= lens.weights.d_vocab:
        raise OptionError(
            f"a relation with ids from {int(pairs.min())} to {int(pairs.max())}: expected 0 to "
            f"{lens.weights.d_vocab - 1}, the model's vocabulary"
        )
    return pairs

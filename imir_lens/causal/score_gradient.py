"""The gradient with respect to the scores before the softmax (Theorem 3, derived here), and its mean at initialisation.

A head mixes what it reads, `z = Σ_g a_g r_g` with `a = softmax(s)`, so `∂z/∂s_g = a_g (r_g − z)`. With the loss taken
of the next token y, in two conventions of the readout:

- `probabilities`: r_g is a law over tokens, ℓ = −log z_y, and `∂ℓ/∂s_g = −a_g (r_g(y) / z_y − 1)`;
- `logits`: r_g are logits, ℓ = −log softmax(z)_y, and `∂ℓ/∂s_g = −a_g Σ_j (1[j = y] − softmax(z)_j) (r_g(j) − z_j)`.

The sign: descent raises the score of a candidate whose entry is negative.

At initialisation attention is uniform over n candidates, and a readout that has hardly learned is
`(1 − ε) mu + ε pi(· | x_g)` in the first convention, or `ε (pi(· | x_g) / mu − 1)` on top of `log mu` in the second.
To first order in ε both give, in the mean over data,

    E ∂ℓ/∂s_g = −(ε / n) (X_g − mean X),     X_g = Σ_ij P(x_g = i, x_h = j) pi_ij / mu_j − 1,

so that X of the parent is chi²(pi), and of another candidate at most σ_2(K) √chi²(pi) · √chi²(x_pa(h); x_g) (Cauchy and
Schwarz, then contraction): the parent's score rises first.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from imir_lens.causal.information import pair_joints
from imir_lens.errors import OptionError, did_you_mean
from imir_lens.tasks.kernels import stationary

_READOUTS = ("probabilities", "logits")


def score_gradient(
    weights: Float[Tensor, "*batch candidate"],
    read: Float[Tensor, "*batch candidate token"],
    target: Int[Tensor, "*batch"],
    *,
    readout: str,
) -> Float[Tensor, "*batch candidate"]:
    """Return ∂ℓ/∂s in closed form.

    Args:
        weights: the attention a.
        read: what each candidate is read as, r.
        target: the token y that comes.
        readout: what r is: "probabilities" or "logits".

    Raises:
        OptionError: for another readout.
    """
    mixed = torch.einsum("...g,...gj->...j", weights, read).unsqueeze(-2)
    if readout == "probabilities":
        chosen = target[..., None, None]
        ratio = read.gather(-1, chosen.expand(*read.shape[:-1], 1)) / mixed.gather(-1, chosen)
        return -weights * (ratio.squeeze(-1) - 1)
    if readout == "logits":
        hit = torch.nn.functional.one_hot(target, read.shape[-1]).to(read.dtype).unsqueeze(-2)
        return -weights * ((hit - mixed.softmax(-1)) * (read - mixed)).sum(-1)
    raise OptionError(f"unknown readout {readout!r}; {did_you_mean(str(readout), ('probabilities', 'logits'))}")


def alignment(pi: Float[Tensor, "parent child"], parents: Int[Tensor, " position"]) -> Float[Tensor, "h g"]:
    """Return X at `[h, g]`: chi²(pi) for the parent, less for all others; NaN where g ≥ h or h is a root."""
    joints = pair_joints(pi, parents).transpose(0, 1)  # [h, g] → P(x_g, x_h)
    values = torch.einsum("hgij,ij->hg", joints, pi / stationary(pi)) - 1
    hidden = torch.ones_like(values, dtype=torch.bool).triu() | (parents < 0).unsqueeze(1)
    return values.masked_fill(hidden, torch.nan)


def expected_score_gradient(
    pi: Float[Tensor, "parent child"], parents: Int[Tensor, " position"], *, epsilon: float = 1.0
) -> Float[Tensor, "h g"]:
    """Return E ∂ℓ/∂s at initialisation to first order in ε; NaN where g ≥ h or h is a root."""
    values = alignment(pi, parents)
    count = (~values.isnan()).sum(1, keepdim=True)
    return -epsilon / count * (values - values.nanmean(1, keepdim=True))

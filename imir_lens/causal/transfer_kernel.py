"""The kernel that an ordinary transformer compares tokens of the examples with: `W_tf`, through its copyers' OV maps.

A reading head in a later layer scores key h' of the query from the row of h−1. The row holds what heads k fetched from
the *next* position of an example, x_h^l', and the key what heads m fetched from the *same* position, x_h'^l::

    W_tf[l, l'] = Σ_{m,k} c_ml n_kl' (W_E OV_m) W_QKᵀ (W_E OV_k)ᵀ / scale         rows: the key's token, the parent
                                                                                  columns: the row's token, the child

c is the attention of a head to the same position of an example, n that to the next (`CopyerHead`). It is laid out like
`parameters.effective_kernel`, so column and row error, scale and block-diagonality apply, and it has the same gauge: a
constant in each column changes no attention.

For attention-only models without norms it is exactly the part of the score that is bilinear in tokens of the examples,
each fetched by one head, provided that c and n do not depend on the position. The rest of a score is left out: biases,
positions, the query's own tokens, and what took two heads to fetch. With MLPs or norms the *raw* embedding is pushed
through the heads, as if these were not there: then it is a hint and not an identity.
"""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor, nn

from imir_lens.causal.capture import CopyerHead
from imir_lens.causal.flat_model import as_imir_transformer
from imir_lens.causal.parameters import Blocks
from imir_lens.errors import OptionError, UnsupportedModelError
from imir_lens.ids import Head
from imir_lens.lens_model import LensModel
from imir_lens.models.transformer import ImirTransformer


def transfer_kernel(
    model: nn.Module | LensModel,
    copyers: Sequence[CopyerHead],
    reader: Head,
    *,
    without: Collection[Head] = (),
    d: int | None = None,
) -> Blocks:
    """Return `W_tf[l, l']`: l is the example of the parent, l' that of the child.

    Args:
        model: an ordinary transformer.
        copyers: all of its heads, from `capture_copyers`; those in layers below the reader count, by their masses.
        reader: the head whose scores they are.
        without: heads to leave out.
        d: tokens of the task; the model's vocabulary by default.

    Raises:
        OptionError: when there is no such reader, or no head below it.
        UnsupportedModelError: when the model's weights cannot be read, or its scores are capped and so no sum of
            blocks.
    """
    weights = as_imir_transformer(model)
    cfg = weights.cfg
    if cfg.attn_scores_soft_cap > 0:
        raise UnsupportedModelError(
            "the transfer kernel does not support soft-capped attention scores "
            f"(attn_scores_soft_cap={cfg.attn_scores_soft_cap}) yet; this model has it"
        )
    if not (0 < reader.layer < cfg.n_layers and 0 <= reader.index < cfg.n_heads):
        raise OptionError(
            f"no head {reader} with heads below it in a model of {cfg.n_layers} layers of {cfg.n_heads} heads: "
            "expected one of layer 1 or later"
        )
    below = [copyer for copyer in copyers if copyer.head.layer < reader.layer and copyer.head not in without]
    if not below:
        raise OptionError(f"no heads below {reader} among the copyers: pass all heads of capture_copyers")
    with torch.no_grad():
        fetched = torch.stack([_fetched(weights, copyer.head)[:d] for copyer in below]).double()
        W_Q, W_K = (W[reader.layer, reader.index].double() for W in (weights.W_Q, weights.W_K))
        keys, queries = fetched @ W_K, fetched @ W_Q / cfg.score_scale
        same = torch.stack([copyer.copy_mass for copyer in below]).to(keys)
        after = torch.stack([copyer.next_mass for copyer in below]).to(keys)
        # What is fetched from each example, summed over heads: [example token d_head].
        of_keys = torch.einsum("ml,mtd->ltd", same, keys)
        of_queries = torch.einsum("kl,ktd->ltd", after, queries)
        return torch.einsum("lid,njd->lnij", of_keys, of_queries)


def _fetched(weights: ImirTransformer, head: Head) -> Tensor:
    """Return what a head writes for each token: `W_E W_V W_O`."""
    W_V, W_O = weights.W_V[head.layer, head.index], weights.W_O[head.layer, head.index]
    return weights.W_E @ W_V @ W_O

"""What leaves a task's law unchanged: relabellings of the vocabulary, and rearrangements of a context's blocks."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Int
from torch import Tensor

from imir_lens.tasks.base import Batch


def exchange(vocab: int, these: Sequence[int], those: Sequence[int]) -> Int[Tensor, " vocab"]:
    """Return the relabelling that exchanges `these` with `those`, in order, and leaves all else.

    >>> exchange(5, [1], [2])
    tensor([0, 2, 1, 3, 4])
    """
    relabelling = torch.arange(vocab)
    relabelling[list(these)], relabelling[list(those)] = torch.tensor(list(those)), torch.tensor(list(these))
    return relabelling


def free_exchanges(vocab: int, words: Sequence[int]) -> list[Int[Tensor, " vocab"]]:
    """Return relabellings that generate all permutations of `words`: exchanges of neighbours."""
    return [exchange(vocab, [s], [t]) for s, t in pairwise(words)]


def couple_exchanges(
    vocab: int, couples: Sequence[tuple[int, int]], *, directed: bool = False
) -> list[Int[Tensor, " vocab"]]:
    """Return relabellings that generate all permutations which send couples to couples.

    These are the exchange inside the first couple and the exchanges of neighbouring couples; together they generate the
    exchange inside every couple. Directed couples are sent first to first and second to second, so none is exchanged
    inside.
    """
    inside = [exchange(vocab, [s], [t]) for s, t in couples[:1] if not directed]
    return inside + [exchange(vocab, s, t) for s, t in pairwise(couples)]


def exchange_blocks(batch: Batch, first: int, second: int) -> Batch:
    """Return the contexts with the words of two blocks exchanged, by their order in the context.

    Args:
        batch: with `starts` and `words` in `latent`; of `latent`, only these are kept.
        first: one block.
        second: the other.
    """
    starts, words = batch.latent["starts"], batch.latent["words"].clone()
    words[:, [first, second]] = words[:, [second, first]]
    cells = starts.unsqueeze(2) + torch.arange(words.shape[2], device=starts.device)
    tokens = batch.tokens.scatter(1, cells.flatten(1), words.flatten(1))
    return Batch(tokens, batch.queries, batch.targets, batch.mask, {"starts": starts, "words": words})


def rotate_items(batch: Batch, *, cells: int) -> Batch:
    """Return the contexts with the last item of their first `cells` tokens, a block or one filler, moved to the front.

    Args:
        batch: with `starts` and `words` in `latent`; of `latent`, only these are kept.
        cells: tokens that hold blocks and filler.
    """
    starts, words = batch.latent["starts"], batch.latent["words"]
    width = words.shape[2]
    wraps = starts[:, -1:] + width == cells
    step = torch.where(wraps, width, 1)
    order = (torch.arange(cells, device=starts.device) - step) % cells
    tokens = torch.cat([batch.tokens.gather(1, order), batch.tokens[:, cells:]], dim=1)
    latent = {
        "starts": torch.where(wraps, starts.roll(1, dims=1) + width, starts + 1),
        "words": torch.where(wraps.unsqueeze(2), words.roll(1, dims=1), words),
    }
    latent["starts"] = latent["starts"] % cells
    return Batch(tokens, batch.queries, batch.targets, batch.mask, latent)

"""Token relabellings: permutations of the vocabulary that leave a task's law unchanged."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Int
from torch import Tensor


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

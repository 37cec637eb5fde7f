"""Contexts made of blocks among filler: how they are placed, written and read back.

A context of length L has cells for blocks and filler, then the tokens that open the last block, one of them unless a
task says otherwise. Reading needs no hidden structure: filler separates runs of blocks, so the first token of a block
of k is a non-filler token whose place within its run is a multiple of k.
"""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

FILLER = 0


def choose(rows: int, count: int, of: int, generator: torch.Generator) -> Int[Tensor, "row count"]:
    """Draw `count` distinct numbers below `of` for every row, in random order."""
    return torch.rand(rows, of, generator=generator, device=generator.device).topk(count, dim=1).indices


def place_blocks(
    contexts: int, blocks: int, cells: int, generator: torch.Generator, *, width: int = 2
) -> Int[Tensor, "context block"]:
    """Draw where the blocks of `width` cells start, in order, uniformly over all placements without overlap.

    A placement is a choice of which of the `cells − (width − 1) blocks` items (a block or one filler) are blocks; the
    i-th block starts i (width − 1) cells later than its item, since every earlier block is that much longer than its.
    """
    items = choose(contexts, blocks, cells - (width - 1) * blocks, generator).sort(dim=1).values
    return items + (width - 1) * torch.arange(blocks, device=items.device)


def write_blocks(
    starts: Int[Tensor, "context block"],
    words: Int[Tensor, "context block slot"],
    query: Int[Tensor, "context *given"],
    *,
    length: int,
) -> Int[Tensor, "context position"]:
    """Write the blocks at their starts, the query (one token, or several) last, filler everywhere else."""
    tokens = torch.full((len(starts), length), FILLER, device=starts.device)
    cells = starts.unsqueeze(2) + torch.arange(words.shape[2], device=starts.device)
    tokens.scatter_(1, cells.flatten(1), words.flatten(1))
    last = query.reshape(len(starts), -1)
    tokens[:, length - last.shape[1] :] = last
    return tokens


def block_firsts(
    tokens: Int[Tensor, "context position"], *, width: int = 2, last: int = 1
) -> Bool[Tensor, "context position"]:
    """Mark the first token of every block, from the tokens alone; the `last` tokens, the query, are never marked."""
    position = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    filler = tokens == FILLER
    run_start = torch.where(filler, position + 1, 0).cummax(dim=1).values
    firsts = ~filler & ((position - run_start) % width == 0)
    firsts[:, tokens.shape[1] - last :] = False
    return firsts


def successor(
    tokens: Int[Tensor, "context position"], word: Int[Tensor, " context"]
) -> tuple[Bool[Tensor, " context"], Int[Tensor, " context"]]:
    """Return whether `word` opens a block of its context, and the word after it in the first such block.

    Where it opens none, the second number means nothing.
    """
    opens = block_firsts(tokens) & (tokens == word.unsqueeze(1))
    place = opens.int().argmax(dim=1)  # the first maximum: `place + 1` exists, since the last position is never marked
    return opens.any(dim=1), tokens.gather(1, place.unsqueeze(1) + 1).squeeze(1)


def at_last(tokens: Int[Tensor, "context position"]) -> Int[Tensor, "context 1"]:
    """Return the query positions of contexts whose query stands last."""
    return torch.full((len(tokens), 1), tokens.shape[1] - 1, device=tokens.device)


def word_names(tokens: Int[Tensor, " position"]) -> list[str]:
    """Return `·` for filler and the id for a word."""
    return ["·" if token == FILLER else str(token) for token in tokens.tolist()]

"""Hop: k-hop induction, `[a b] … [b c] … a → c`."""

from dataclasses import dataclass

import torch

from imir_lens.tasks.base import Batch
from imir_lens.tasks.block_form import BlockForm, Link
from imir_lens.tasks.block_list import BlockListTask
from imir_lens.tasks.layout import choose
from imir_lens.tasks.registry import register


@register
@dataclass(frozen=True)
class Hop(BlockListTask):
    """Follow a chain of pairs for a fixed number of steps.

    Every chain a₀ → a₁ → … → a_hops stands in the context as the blocks `[aᵢ aᵢ₊₁]`; distractor blocks hold words of
    their own. All blocks stand in random order, with filler between them at random. The last token repeats the a₀ of
    one chain and the answer is its a_hops. Apart from the chaining all words of a context are distinct.

    Attributes:
        vocab: number of tokens; id 0 is filler, the words are 1 .. vocab − 1.
        hops: steps from the query to the answer; 1 is plain recall.
        chains: chains in a context.
        distractors: blocks that belong to no chain.
        length: tokens in a context, the query included.

    Raises:
        TaskError: when the words or the blocks do not fit; the message names the inequality.
    """

    vocab: int = 64
    hops: int = 2
    chains: int = 2
    distractors: int = 2
    length: int = 24

    name = "hop"
    summary = "k-hop induction: follow a chain of pairs from the query to its end"

    def __post_init__(self) -> None:
        for knob, least in (("hops", 1), ("chains", 1), ("distractors", 0)):
            self._require(getattr(self, knob) >= least, f"{knob} >= {least}", knob)
        sizes = ("hops", "chains", "distractors")
        words = "chains*(hops+1) + 2*distractors <= vocab-1 distinct words"
        self._require(self._words <= self.vocab - 1, words, *sizes, "vocab")
        room = "2*(chains*hops + distractors) <= length-1"
        self._require(2 * self.n_blocks <= self.length - 1, room, *sizes, "length")

    @property
    def form(self) -> BlockForm:
        """Pairs; the query opens one, and what it leads to opens the next."""
        return BlockForm(("word", "next"), (Link(0, 0),), answer=1, steps=self.hops)

    @property
    def _words(self) -> int:
        return self.chains * (self.hops + 1) + 2 * self.distractors

    @property
    def n_blocks(self) -> int:
        """Number of whole blocks in a context."""
        return self.chains * self.hops + self.distractors

    def sample(self, contexts: int, generator: torch.Generator) -> Batch:
        """Draw contexts.

        `latent`: `starts` [context block] the blocks' positions in order, `words` [context block 2], `block_chain`
        [context block] the chain each block belongs to (−1: none), `chain_words` [context chain hops+1], and
        `queried` [context] the queried chain.
        """
        device = generator.device
        words = choose(contexts, self._words, self.vocab - 1, generator) + 1
        in_chains = self.chains * (self.hops + 1)
        chain_words = words[:, :in_chains].unflatten(1, (self.chains, self.hops + 1))
        links = torch.stack([chain_words[..., :-1], chain_words[..., 1:]], dim=-1).flatten(1, 2)
        others = words[:, in_chains:].unflatten(1, (self.distractors, 2))
        of_chain = torch.arange(self.chains, device=device).repeat_interleave(self.hops)
        of_chain = torch.cat([of_chain, of_chain.new_full((self.distractors,), -1)])
        order = choose(contexts, self.n_blocks, self.n_blocks, generator)
        blocks = torch.cat([links, others], dim=1).gather(1, order.unsqueeze(2).expand(-1, -1, 2))
        starts = self.place(contexts, generator)
        queried = torch.randint(self.chains, (contexts,), generator=generator, device=device)
        chain = chain_words[torch.arange(contexts, device=device), queried]
        latent = {"block_chain": of_chain[order], "chain_words": chain_words, "queried": queried}
        return self.lay_out(starts, blocks, chain[:, 0], chain[:, -1], latent)

"""Hop: k-hop induction, `[a b] … [b c] … a → c`."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from imir_lens.errors import TaskError
from imir_lens.relations import TokenRelations
from imir_lens.tasks.base import Batch, Task
from imir_lens.tasks.layout import FILLER, at_last, choose, place_blocks, successor, word_names, write_blocks
from imir_lens.tasks.registry import register
from imir_lens.tasks.symmetry import free_exchanges


@register
@dataclass(frozen=True)
class Hop(Task):
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
            if getattr(self, knob) < least:
                raise TaskError(f"hop needs {knob} >= {least}: {knob}={getattr(self, knob)}")
        knobs = f"hops={self.hops}, chains={self.chains}, distractors={self.distractors}"
        if self._words > self.vocab - 1:
            raise TaskError(
                f"hop needs chains*(hops+1) + 2*distractors <= vocab-1 distinct words: {knobs}, vocab={self.vocab}"
            )
        if 2 * self._blocks > self.length - 1:
            raise TaskError(f"hop needs 2*(chains*hops + distractors) <= length-1: {knobs}, length={self.length}")

    @property
    def _words(self) -> int:
        return self.chains * (self.hops + 1) + 2 * self.distractors

    @property
    def _blocks(self) -> int:
        return self.chains * self.hops + self.distractors

    @property
    def d_vocab(self) -> int:
        """Number of tokens."""
        return self.vocab

    @property
    def n_positions(self) -> int:
        """Length of a context."""
        return self.length

    @cached_property
    def relations(self) -> TokenRelations:
        """Filler against words, and `same` over the words; no word is tied to another."""
        same = torch.arange(self.vocab)
        same[FILLER] = -1
        classes = {"filler": torch.tensor([FILLER]), "word": torch.arange(1, self.vocab)}
        return TokenRelations(classes, {"same": same}, reference="filler")

    @property
    def symmetry_generators(self) -> list[Int[Tensor, " vocab"]]:
        """Exchanges of neighbouring words: any relabelling of words leaves the law unchanged."""
        return free_exchanges(self.vocab, range(1, self.vocab))

    @property
    def reference_circuit(self) -> tuple[str, ...]:
        """Previous-token head, one matching head for each hop, copying from the last."""
        alpha = "L0H0/score/q:res/k:res/offset+1"
        paths = ("res", *(f"L{layer}H0" for layer in range(1, self.hops + 1)))
        betas = (f"L{hop + 1}H0/score/q:{paths[hop]}/k:L0H0/same" for hop in range(self.hops))
        return (alpha, *betas, f"readout/via:{paths[-1]}/same")

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
        order = choose(contexts, self._blocks, self._blocks, generator)
        blocks = torch.cat([links, others], dim=1).gather(1, order.unsqueeze(2).expand(-1, -1, 2))
        starts = place_blocks(contexts, self._blocks, self.length - 1, generator)
        queried = torch.randint(self.chains, (contexts,), generator=generator, device=device)
        chain = chain_words[torch.arange(contexts, device=device), queried]
        tokens = write_blocks(starts, blocks, chain[:, 0], length=self.length)
        targets = chain[:, -1:]
        latent = {
            "starts": starts,
            "words": blocks,
            "block_chain": of_chain[order],
            "chain_words": chain_words,
            "queried": queried,
        }
        return Batch(tokens, at_last(tokens), targets, torch.ones_like(targets, dtype=torch.bool), latent)

    def bayes(self, batch: Batch) -> Float[Tensor, "context query vocab"]:
        """Follow the chain from the query: no word opens two blocks, so the answer is certain."""
        word = batch.tokens[:, -1]
        for _ in range(self.hops):
            word = successor(batch.tokens, word)[1]
        return one_hot(word, self.vocab).float().unsqueeze(1)

    def chance(self) -> Float[Tensor, " vocab"]:
        """Return the uniform law over words."""
        law = torch.full((self.vocab,), 1 / (self.vocab - 1))
        law[FILLER] = 0
        return law

    def decode(self, tokens: Int[Tensor, " position"]) -> list[str]:
        """Return `·` for filler and the number for a word."""
        return word_names(tokens)

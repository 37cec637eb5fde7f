"""Ngram: in-context n-grams, `… a b c … a b → c`: match the last n − 1 tokens, all of them at once."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Int
from torch import Tensor

from imir_lens.relations import TokenRelations
from imir_lens.tasks.base import Batch
from imir_lens.tasks.block_form import BlockForm, Link
from imir_lens.tasks.block_list import BlockListTask
from imir_lens.tasks.layout import at_last
from imir_lens.tasks.registry import register
from imir_lens.tasks.symmetry import free_exchanges


@register
@dataclass(frozen=True)
class Ngram(BlockListTask):
    """A random text whose last n − 1 tokens stood before; the answer is what followed them there.

    The law is uniform over all texts of the given length in which no token follows itself and the last n − 1 tokens
    occur exactly once before, complete with what followed them before their repetition begins. What the literature
    leaves open and we chose: each text has n-grams of its own (there is nothing to remember); the answer is certain, as
    in the limit of n-gram tables without noise; all shorter matches happen by chance, often with a small vocabulary, so
    that only the conjunction of n − 1 matches finds the place; and no token follows itself, since such a text has runs
    in which a look one back and a look two back agree. With n = 2 this is an induction task without filler.

    Texts are drawn by rejection: a random text, then the n − 1 tokens of a random place in it once more.

    The reference circuit has n − 1 heads in its first layer, one for each distance over which a token must be brought,
    and one head that adds up the n − 1 matches.

    Attributes:
        vocab: number of tokens, all of them words.
        n: size of the n-grams: n − 1 tokens are matched.
        length: tokens in a context.

    Raises:
        TaskError: when an n-gram does not fit or cannot be unique; the message names the inequality.
    """

    vocab: int = 24
    n: int = 3
    length: int = 24

    name = "ngram"
    summary = "in-context n-gram: find where the last n-1 tokens stood before, answer what followed"

    def __post_init__(self) -> None:
        self._require(self.n >= 2, "n >= 2", "n")
        self._require(self.vocab >= 3, "vocab >= 3", "vocab")
        self._require(2 * self.n - 1 <= self.length, "2*n-1 <= length", "n", "length")
        grams = self.vocab * (self.vocab - 1) ** (self.n - 2)
        room = "length-n+1 <= vocab*(vocab-1)^(n-2) distinct runs of n-1 tokens"
        self._require(self.length - self.n + 1 <= grams, room, "length", "n", "vocab")

    @property
    def form(self) -> BlockForm:
        """Every window of n tokens; the query gives the first n − 1 of one."""
        links = tuple(Link(back, self.n - 2 - back) for back in range(self.n - 1))
        return BlockForm(tuple(f"token_{i + 1}" for i in range(self.n)), links, answer=self.n - 1, overlapping=True)

    @property
    def n_blocks(self) -> int:
        """Windows that end before the last token."""
        return self.length - self.n

    @property
    def answers(self) -> range:
        """All tokens."""
        return range(self.vocab)

    @cached_property
    def relations(self) -> TokenRelations:
        """One kind of token, and `same`."""
        ids = torch.arange(self.vocab)
        return TokenRelations({"word": ids}, {"same": ids}, reference="word")

    @property
    def symmetry_generators(self) -> list[Int[Tensor, " vocab"]]:
        """Exchanges of neighbouring tokens: any relabelling leaves the law unchanged."""
        return free_exchanges(self.vocab, range(self.vocab))

    def sample(self, contexts: int, generator: torch.Generator) -> Batch:
        """Draw contexts.

        `latent`: `place` [context] where the last n − 1 tokens stood before.
        """
        drawn: list[tuple[Tensor, Tensor]] = []
        missing = contexts
        while missing > 0:
            texts, places, accepted = self._propose(missing + missing // 2 + 8, generator)
            drawn.append((texts[accepted], places[accepted]))
            missing -= len(drawn[-1][0])
        tokens, places = (torch.cat(parts)[:contexts] for parts in zip(*drawn, strict=True))
        targets = tokens.gather(1, places.unsqueeze(1) + self.n - 1)
        return Batch(tokens, at_last(tokens), targets, torch.ones_like(targets, dtype=torch.bool), {"place": places})

    def _propose(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Draw texts that end in a repetition, where it stood before, and whether the law allows them."""
        device, gram = generator.device, self.n - 1
        steps = torch.randint(1, self.vocab, (count, self.length - gram), generator=generator, device=device)
        steps[:, 0] = torch.randint(self.vocab, (count,), generator=generator, device=device)
        text = steps.cumsum(dim=1) % self.vocab
        places = torch.randint(self.length - 2 * self.n + 2, (count,), generator=generator, device=device)
        again = text.gather(1, places.unsqueeze(1) + torch.arange(gram, device=device))
        tokens = torch.cat([text, again], dim=1)
        occurrences = (tokens[:, :-1].unfold(1, gram, 1) == again.unsqueeze(1)).all(dim=2).sum(dim=1)
        return tokens, places, (occurrences == 1) & (text[:, -1] != again[:, 0])

    def decode(self, tokens: Int[Tensor, " position"]) -> list[str]:
        """Return the number of each token."""
        return [str(token) for token in tokens.tolist()]

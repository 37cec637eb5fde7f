"""Repeated: a list of distinct random words, over and over, `a b c a b c a → b`; asked once it has begun again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from imir_lens.tasks.base import Batch
from imir_lens.tasks.block_form import BlockForm, Link, linked_parts
from imir_lens.tasks.block_list import BlockListTask
from imir_lens.tasks.layout import FILLER, choose
from imir_lens.tasks.registry import register


@register
@dataclass(frozen=True)
class Repeated(BlockListTask):
    """One filler token, then a random list of words over and over: the probe by which induction heads are known.

    A context draws a period n, uniform from `shortest` to `longest`, and n distinct words in random order. After one
    filler token, where a language model wants its beginning of text, it goes through the list until the context ends.
    Every place is asked at which the first word has come back whatever the period is. What the literature leaves open
    and we chose: words of a list are distinct, so that each answer is certain from the first repetition on; the first
    word of the repetition is not asked for, since nothing announces it; and the period is random, so that only matching
    finds the place. With `shortest = longest` the distance is always the same, and a look that far back is enough: a
    circuit of one layer. (With twice that in words it is `copy` with `gap = 0`. That task places two copies at random
    among filler, which no language model was trained on; here all but the first token are words.)

    Attributes:
        vocab: number of tokens; id 0 is filler, the words are 1 .. vocab − 1.
        shortest: least number of words in the list.
        longest: largest number of words in the list.
        length: tokens in a context.

    Raises:
        TaskError: when the words or the repetition do not fit; the message names the inequality.
    """

    vocab: int = 64
    shortest: int = 4
    longest: int = 10
    length: int = 24

    name = "repeated"
    summary = "a list of random words, repeated: every place of the repetition asks for the next word"

    def __post_init__(self) -> None:
        self._require(2 <= self.shortest <= self.longest, "2 <= shortest <= longest", "shortest", "longest")
        self._require(self.longest <= self.vocab - 1, "longest <= vocab-1 distinct words", "longest", "vocab")
        self._require(self.longest + 2 <= self.length, "longest+2 <= length", "longest", "length")

    @property
    def form(self) -> BlockForm:
        """A word and the next: each word of the repetition opens a block."""
        return BlockForm(("token", "next"), (Link(0, 0),), answer=1, overlapping=True)

    @property
    def n_blocks(self) -> int:
        """Windows of two words."""
        return self.length - 2

    @property
    def context_symmetries(self) -> Mapping[str, Callable[[Batch], Batch]]:
        """None: starting the list at another of its words is a relabelling of the words."""
        return {}

    @property
    def query_positions(self) -> tuple[int, ...]:
        """The places by which every list has begun again."""
        return tuple(range(self.longest + 1, self.length))

    @property
    def reference_circuit(self) -> tuple[str, ...]:
        """The induction head; with a fixed period, a look back over the list.

        Nothing has to keep the head off the asked word itself, as in `copy`: the first position holds filler.
        """
        if self.shortest < self.longest:
            parts = linked_parts(self.form)
            return (*parts.alphas.values(), *parts.matches, parts.readout)
        return (f"L0H0/score/q:res/k:res/offset+{self.longest - 1}", "readout/via:L0H0/same")

    def sample(self, contexts: int, generator: torch.Generator) -> Batch:
        """Draw contexts.

        `latent`: `period` [context], `words` [context longest], of which the first `period` are used.
        """
        device = generator.device
        words = choose(contexts, self.longest, self.vocab - 1, generator) + 1
        period = torch.randint(self.shortest, self.longest + 1, (contexts, 1), generator=generator, device=device)
        text = words.gather(1, torch.arange(self.length, device=device) % period)  # one word more than is shown
        tokens = torch.cat([torch.full_like(period, FILLER), text[:, :-1]], dim=1)
        queries = torch.tensor(self.query_positions, device=device).repeat(contexts, 1)
        mask = torch.ones_like(queries, dtype=torch.bool)
        targets = text[:, self.longest + 1 :]
        return Batch(tokens, queries, targets, mask, {"period": period.squeeze(1), "words": words})

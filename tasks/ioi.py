"""Ioi: symbolic indirect-object identification, `… A … B … A → B`: two names, one repeated, answer the other."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from imir_lens.relations import TokenRelations
from imir_lens.tasks.base import Batch
from imir_lens.tasks.block_form import BlockForm, Link
from imir_lens.tasks.block_list import BlockListTask
from imir_lens.tasks.layout import FILLER, choose
from imir_lens.tasks.registry import register
from imir_lens.tasks.symmetry import free_exchanges


@register
@dataclass(frozen=True)
class Ioi(BlockListTask):
    """Two names stand in a context, one of them is repeated, and the answer is the other.

    A context draws two names and `distractors` other words, all distinct, and puts them in random order with filler
    between them at random. Then one of the two names, either with probability 1/2, is repeated, and `gap` filler tokens
    follow; the prediction is asked for at the last token. What the literature leaves open and we chose: names and words
    are symbols without meaning, each its own kind of token; the repeated name is as often the first as the second; and
    the distance from the repeated name to the place of prediction is fixed.

    The reference circuit has one layer. With a gap it takes two heads: one fetches the repeated name, to be subtracted,
    and the other averages all names. Without a gap the repeated name is the query itself, and one head that attends to
    names unlike it is enough.

    Attributes:
        vocab: number of tokens; id 0 is filler, then come the names, then the other words.
        names: number of names in the vocabulary.
        distractors: words in a context that are not names.
        gap: filler tokens after the repeated name, at whose last one the prediction is asked for.
        length: tokens in a context.

    Raises:
        TaskError: when the words do not fit; the message names the inequality.
    """

    vocab: int = 64
    names: int = 32
    distractors: int = 8
    gap: int = 1
    length: int = 24

    name = "ioi"
    summary = "symbolic indirect-object identification: two names, one repeated, answer the other"

    def __post_init__(self) -> None:
        for knob in ("distractors", "gap"):
            self._require(getattr(self, knob) >= 0, f"{knob} >= 0", knob)
        self._require(2 <= self.names <= self.vocab - 1, "2 <= names <= vocab-1", "names", "vocab")
        others = "distractors <= vocab-1-names other words"
        self._require(self.distractors <= self.vocab - 1 - self.names, others, "distractors", "names", "vocab")
        room = "distractors + gap + 3 <= length"
        self._require(self.distractors + self.gap + 3 <= self.length, room, "distractors", "gap", "length")

    @property
    def form(self) -> BlockForm:
        """Names, each a block; the answer is the one that differs from the name repeated."""
        return BlockForm(("name",), (Link(self.gap, 0, differs=True),), answer=0)

    @property
    def n_blocks(self) -> int:
        """Names and other words before the repeated name."""
        return 2 + self.distractors

    @property
    def answers(self) -> range:
        """The names."""
        return range(1, self.names + 1)

    @cached_property
    def relations(self) -> TokenRelations:
        """Filler, names and words; `same` over the last two."""
        ids = torch.arange(self.vocab)
        members = [("filler", ids[:1]), ("name", ids[1 : self.names + 1]), ("word", ids[self.names + 1 :])]
        classes = {name: tokens for name, tokens in members if len(tokens)}
        return TokenRelations(classes, {"same": torch.where(ids == FILLER, -1, ids)}, reference="filler")

    @property
    def symmetry_generators(self) -> list[Int[Tensor, " vocab"]]:
        """Exchanges of neighbouring names, and of neighbouring words."""
        words = free_exchanges(self.vocab, range(self.names + 1, self.vocab))
        return [*free_exchanges(self.vocab, self.answers), *words]

    @property
    def reference_circuit(self) -> tuple[str, ...]:
        """Attend to the names, copy them, and inhibit the repeated one."""
        if self.gap == 0:
            return ("L0H0/score/q:const/k:res/name", "L0H0/score/q:res/k:res/same", "readout/via:L0H0/same")
        fetch = (f"L0H0/score/q:res/k:res/offset+{self.gap}", "readout/via:L0H0/same")
        return (fetch[0], "L0H1/score/q:const/k:res/name", fetch[1], "readout/via:L0H1/same")

    def block_starts(self, tokens: Int[Tensor, "context position"]) -> Bool[Tensor, "context position"]:
        """Mark the names before the repeated one."""
        names = (tokens >= 1) & (tokens <= self.names)
        names[:, self.length - 1 - self.gap :] = False
        return names

    def sample(self, contexts: int, generator: torch.Generator) -> Batch:
        """Draw contexts.

        `latent`: `starts` [context word] the positions of names and words in order, `words` [context word 1], and
        `repeated` [context] which of the two names, in order of position, is repeated.
        """
        names = choose(contexts, 2, self.names, generator) + 1
        words = choose(contexts, self.distractors, self.vocab - 1 - self.names, generator) + self.names + 1
        order = choose(contexts, self.n_blocks, self.n_blocks, generator)
        blocks = torch.cat([names, words], dim=1).gather(1, order).unsqueeze(2)
        repeated = torch.randint(2, (contexts,), generator=generator, device=generator.device)
        in_order = names.gather(1, order.argsort(dim=1)[:, :2].argsort(dim=1))
        chosen = in_order.gather(1, torch.stack([repeated, 1 - repeated], dim=1))
        given = torch.nn.functional.pad(chosen[:, :1], (0, self.gap), value=FILLER)
        starts = self.place(contexts, generator)
        return self.lay_out(starts, blocks, given, chosen[:, 1], {"repeated": repeated})

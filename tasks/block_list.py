"""What tasks of the general form share: `block_form` says what the form is, this says how it is drawn and solved.

The form gives the reference circuit, and the Bayes predictor wherever the law makes the answer certain.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property, partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from imir_lens.errors import TaskError
from imir_lens.relations import TokenRelations
from imir_lens.tasks.base import Batch, Task
from imir_lens.tasks.block_form import BlockForm, linked_parts
from imir_lens.tasks.layout import FILLER, at_last, block_firsts, place_blocks, word_names, write_blocks
from imir_lens.tasks.symmetry import exchange_blocks, free_exchanges, rotate_items


class BlockListTask(Task):
    """A task of the general form, with what its members share. Subclasses are frozen dataclasses with these two knobs.

    Unless a member says otherwise, id 0 is filler, all other tokens are words that nothing ties to one another, the
    answer is certain given the context, and any word is equally likely to be it.

    Attributes:
        vocab: number of tokens.
        length: tokens in a context.
    """

    vocab: int
    length: int

    @property
    @abstractmethod
    def form(self) -> BlockForm:
        """The blocks and their links."""

    @property
    @abstractmethod
    def n_blocks(self) -> int:
        """Number of whole blocks in a context, distractors included."""

    @property
    def d_vocab(self) -> int:
        """Number of tokens."""
        return self.vocab

    @property
    def n_positions(self) -> int:
        """Length of a context."""
        return self.length

    @property
    def answers(self) -> range:
        """The tokens that can be an answer, all equally likely before the context is seen: the words."""
        return range(1, self.vocab)

    @cached_property
    def relations(self) -> TokenRelations:
        """Filler against words, and `same` over the words; no word is tied to another."""
        ids = torch.arange(self.vocab)
        classes = {"filler": ids[:1], "word": ids[1:]}
        return TokenRelations(classes, {"same": torch.where(ids == FILLER, -1, ids)}, reference="filler")

    @property
    def symmetry_generators(self) -> list[Int[Tensor, " vocab"]]:
        """Exchanges of neighbouring words: any relabelling of words leaves the law unchanged."""
        return free_exchanges(self.vocab, range(1, self.vocab))

    @property
    def context_symmetries(self) -> Mapping[str, Callable[[Batch], Batch]]:
        """Rearrangements of contexts that leave the law unchanged, by name; they generate the others.

        Where blocks stand in random order among filler: exchanges of neighbouring blocks, and the cyclic shift that
        moves the last block or filler to the front. On pairs of positions its orbits are the offsets.
        """
        if self.form.overlapping:
            return {}
        cells = self.length - self.form.given
        exchanges = {
            f"exchange blocks {i} and {i + 1}": partial(exchange_blocks, first=i, second=i + 1)
            for i in range(self.n_blocks - 1)
        }
        return exchanges | {"rotate": partial(rotate_items, cells=cells)}

    @property
    def reference_circuit(self) -> tuple[str, ...]:
        """The circuit that brings everything about a block to one slot and matches there; see `linked_parts`."""
        return linked_parts(self.form).ids

    def bayes(self, batch: Batch) -> Float[Tensor, "context query vocab"]:
        """Follow the links from the query: they single out one block, so the answer is certain."""
        return one_hot(self.linked(batch.tokens, batch.queries)[1], self.vocab).float()

    def chance(self) -> Float[Tensor, " vocab"]:
        """Return the uniform law over the possible answers."""
        law = torch.zeros(self.vocab)
        law[list(self.answers)] = 1 / len(self.answers)
        return law

    def decode(self, tokens: Int[Tensor, " position"]) -> list[str]:
        """Return `·` for filler and the number for a word."""
        return word_names(tokens)

    def block_starts(self, tokens: Int[Tensor, "context position"]) -> Bool[Tensor, "context position"]:
        """Mark where blocks start, from the tokens alone."""
        if self.form.overlapping:
            return torch.ones_like(tokens, dtype=torch.bool)
        return block_firsts(tokens, width=self.form.width, last=self.form.given)

    def linked(
        self, tokens: Int[Tensor, "context position"], queries: Int[Tensor, "context query"]
    ) -> tuple[Bool[Tensor, "context query"], Int[Tensor, "context query"]]:
        """Return whether some block is linked to each query, and the answer of the first such block.

        Only blocks that end at the query or before it count. Where there is none, the second number means nothing.
        """
        form = self.form
        last_start = tokens.shape[1] - form.width
        starts = self.block_starts(tokens)[:, : last_start + 1].unsqueeze(1)  # [context, 1, start]
        place = torch.arange(last_start + 1, device=tokens.device)
        starts = starts & (place + form.width - 1 <= queries.unsqueeze(2))
        slots = tokens.unfold(1, form.width, 1)  # [context, start, slot]
        given = [tokens.gather(1, queries - link.back) for link in form.links]
        for _ in range(form.steps):
            holds = starts
            for link, token in zip(form.links, given, strict=True):
                equal = slots[..., link.slot].unsqueeze(1) == token.unsqueeze(2)
                holds = holds & (equal ^ link.differs)
            found = holds.any(dim=2)
            answer = slots[..., form.answer].gather(1, holds.int().argmax(dim=2))
            given = [answer]
        return found, answer

    def place(self, contexts: int, generator: torch.Generator) -> Int[Tensor, "context block"]:
        """Draw where the blocks start, before what is given of the last one: uniform over all placements, in order."""
        cells = self.length - self.form.given
        return place_blocks(contexts, self.n_blocks, cells, generator, width=self.form.width)

    def lay_out(
        self,
        starts: Int[Tensor, "context block"],
        blocks: Int[Tensor, "context block slot"],
        given: Int[Tensor, "context *given"],
        targets: Int[Tensor, " context"],
        latent: dict[str, Tensor],
    ) -> Batch:
        """Write the blocks, and last what is given of the next one; ask for the prediction there.

        `latent` gains `starts` [context block], the blocks' positions, and `words` [context block slot].
        """
        tokens = write_blocks(starts, blocks, given, length=self.length)
        answer = targets.unsqueeze(1)
        latent = {"starts": starts, "words": blocks} | latent
        return Batch(tokens, at_last(tokens), answer, torch.ones_like(answer, dtype=torch.bool), latent)

    def _require(self, holds: bool, inequality: str, *knobs: str) -> None:
        """Raise the one line that names the inequality and the values of its knobs."""
        if not holds:
            values = ", ".join(f"{knob}={getattr(self, knob)}" for knob in knobs)
            raise TaskError(f"{self.name} needs {inequality}: {values}")

"""Copy: a segment of distinct words, then the segment again, `… a b c d … a b c → d`, asked at every place."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch

from imir_lens.tasks.base import Batch
from imir_lens.tasks.block_form import BlockForm, Link, linked_parts
from imir_lens.tasks.block_list import BlockListTask
from imir_lens.tasks.layout import choose, write_blocks
from imir_lens.tasks.registry import register
from imir_lens.tasks.symmetry import rotate_items


@register
@dataclass(frozen=True)
class Copy(BlockListTask):
    """A segment stands in a context and is repeated at its end; every place of the repetition asks for the next word.

    A context draws `segment` distinct words in random order and writes them without interruption, somewhere among
    filler; it ends in the first `segment − 1` of them once more, and each of these asks for the word that follows it.
    What the literature leaves open and we chose: words of a segment are distinct, so that each answer is certain; the
    first word of the repetition is not asked for, since nothing announces it; and the distance between the copies is
    random, so that only matching finds the place. With a fixed `gap` the distance is always the same, and a look that
    far back is enough: a circuit of one layer.

    Attributes:
        vocab: number of tokens; id 0 is filler, the words are 1 .. vocab − 1.
        segment: words in the segment.
        gap: filler tokens between the copies; none draws the place of the first copy uniformly.
        length: tokens in a context.

    Raises:
        TaskError: when the words or the copies do not fit; the message names the inequality.
    """

    vocab: int = 64
    segment: int = 8
    gap: int | None = None
    length: int = 24

    name = "copy"
    summary = "a repeated segment: every place of the second copy asks for the next word"

    def __post_init__(self) -> None:
        self._require(2 <= self.segment <= self.vocab - 1, "2 <= segment <= vocab-1 distinct words", "segment", "vocab")
        if self.gap is None:
            self._require(2 * self.segment - 1 <= self.length, "2*segment-1 <= length", "segment", "length")
            return
        self._require(self.gap >= 0, "gap >= 0", "gap")
        room = "2*segment-1 + gap <= length"
        self._require(2 * self.segment - 1 + self.gap <= self.length, room, "segment", "gap", "length")

    @property
    def form(self) -> BlockForm:
        """A word and the next: each word of the repetition opens a block."""
        return BlockForm(("token", "next"), (Link(0, 0),), answer=1, overlapping=True)

    @property
    def n_blocks(self) -> int:
        """Windows of the segment."""
        return self.segment - 1

    @property
    def context_symmetries(self) -> Mapping[str, Callable[[Batch], Batch]]:
        """The cyclic shift of the segment among its filler, where the gap is random."""
        cells = self.length - self.segment + 1
        return {"rotate": partial(rotate_items, cells=cells)} if self.gap is None else {}

    @property
    def query_positions(self) -> tuple[int, ...]:
        """The places of the repetition."""
        return tuple(range(self.length - self.segment + 1, self.length))

    @property
    def reference_circuit(self) -> tuple[str, ...]:
        """The induction head; with a fixed gap, a look back over the segment and the gap."""
        if self.gap is None:
            return linked_parts(self.form).ids
        return (f"L0H0/score/q:res/k:res/offset+{self.segment + self.gap - 1}", "readout/via:L0H0/same")

    def sample(self, contexts: int, generator: torch.Generator) -> Batch:
        """Draw contexts.

        `latent`: `starts` [context 1] where the segment stands, `words` [context 1 segment].
        """
        device = generator.device
        words = choose(contexts, self.segment, self.vocab - 1, generator) + 1
        last = self.length - 2 * self.segment + 1  # the last place where the segment can start
        if self.gap is None:
            starts = torch.randint(last + 1, (contexts, 1), generator=generator, device=device)
        else:
            starts = torch.full((contexts, 1), last - self.gap, device=device)
        blocks = words.unsqueeze(1)
        tokens = write_blocks(starts, blocks, words[:, :-1], length=self.length)
        queries = torch.tensor(self.query_positions, device=device).repeat(contexts, 1)
        mask = torch.ones_like(queries, dtype=torch.bool)
        return Batch(tokens, queries, words[:, 1:], mask, {"starts": starts, "words": blocks})

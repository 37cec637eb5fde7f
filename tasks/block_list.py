"""The general form of a task: a list of blocks, then the beginning of one more; predict what continues it.

A context holds n blocks of k slots, in any order and with filler between them, and ends in the tokens that open the
last block. **Links** say how the last block is tied to an earlier one: the token `back` places before the place of
prediction equals what stands in slot `slot` of that block (or differs from it). The answer is what that block holds in
slot `answer`. In a chain the answer so found is looked up in turn, `steps` times in all. Blocks that fit no link are
distractors; `overlapping` blocks are all windows of k tokens of a text without filler.

    task        slots              links: (back, slot)         answer   what else
    recall      word, label        (0, 0)                      1
    inversion   source, image      (0, 1)                      0        match forward, read back
    hop         word, next         (0, 0)                      1        steps = hops
    retrieval   key, field, value  (1, 0), (0, 1)              2        two matches in conjunction
    ngram       n tokens           (n−2, 0), …, (0, n−2)       n−1      overlapping; n − 1 matches in conjunction
    copy        token, next        (0, 0)                      1        overlapping; asked at many places
    ioi         name               (gap, 0), differs           0

The form gives the Bayes predictor wherever the law makes the answer certain, and the reference circuit.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from imir_lens.errors import TaskError
from imir_lens.relations import TokenRelations
from imir_lens.tasks.base import Batch, Task
from imir_lens.tasks.layout import FILLER, at_last, block_firsts, place_blocks, word_names, write_blocks
from imir_lens.tasks.symmetry import exchange_blocks, free_exchanges, rotate_items


@dataclass(frozen=True)
class Link:
    """One tie between the last block and an earlier one.

    Attributes:
        back: how far before the place of prediction the token stands.
        slot: the slot of the earlier block it is compared with.
        differs: the two must differ instead of being equal.
    """

    back: int
    slot: int
    differs: bool = False


@dataclass(frozen=True)
class BlockForm:
    """What the blocks of a task are and how they are linked; see the module.

    Attributes:
        slots: the role of each slot, in order.
        links: all of them hold between the last block and the one that is asked for.
        answer: the slot that holds the answer.
        steps: how often the links are followed; more than once needs a single link with back = 0.
        overlapping: every window of k tokens is a block, filler or not.
    """

    slots: tuple[str, ...]
    links: tuple[Link, ...]
    answer: int
    steps: int = 1
    overlapping: bool = False

    @property
    def width(self) -> int:
        """Tokens in a block."""
        return len(self.slots)

    @property
    def given(self) -> int:
        """How many tokens of the last block stand in the context."""
        return 1 + max(link.back for link in self.links)

    @property
    def meeting(self) -> int:
        """The slot at which everything about a block is known: the last one that is linked or asked for."""
        return max(self.answer, *(link.slot for link in self.links))

    @property
    def offsets(self) -> tuple[int, ...]:
        """How far tokens must be brought, to the meeting slot or to the place of prediction, shortest first."""
        moves = {self.meeting - self.answer}
        for link in self.links:
            moves |= {link.back, self.meeting - link.slot}
        return tuple(sorted(moves - {0}))


@dataclass(frozen=True)
class LinkedParts:
    """The reference circuit of a form, part by part: coordinate ids.

    Attributes:
        alphas: offset → attention to the position that far back.
        matches: one for each link, in the order of `links`; for a chain, one for each step.
        readout: copying of what was found.
        finders: the heads that match, one for each step.
    """

    alphas: dict[int, str]
    matches: tuple[str, ...]
    readout: str
    finders: tuple[str, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """All ids, in the order in which they act."""
        return (*self.alphas.values(), *self.matches, self.readout)


def linked_parts(form: BlockForm, *, heads: Mapping[str, str] | None = None) -> LinkedParts:
    """Return the circuit that solves a form by bringing everything about a block to its meeting slot.

    One head for each offset that something has to be brought over; above them, one that attends to the meeting slot of
    the block whose links all hold, their scores adding up, and one more for each further step of a chain. What it finds
    there, or what was brought there, is read out. Two layers are the least when anything has to be brought: what stood
    in another slot is not in a token's own embedding.

    Args:
        form: without `differs`.
        heads: where the parts `alpha_1`, `alpha_2`, … (by offset) and `beta_1`, … (by step) live; default, L0H0, L0H1,
            … and L1H0, L2H0, …
    """
    at = dict(heads or {})
    movers = {k: at.get(f"alpha_{k}", f"L0H{index}") for index, k in enumerate(form.offsets)}
    finders = tuple(at.get(f"beta_{step}", f"L{step}H0") for step in range(1, form.steps + 1))
    path = {0: "res"} | movers
    matches = [
        f"{finders[0]}/score/q:{path[link.back]}/k:{path[form.meeting - link.slot]}/same"
        for link in sorted(form.links, key=lambda link: link.back)
    ]
    for before, head in pairwise(finders):
        matches.append(f"{head}/score/q:{before}/k:{path[form.meeting - form.links[0].slot]}/same")
    brought = form.meeting - form.answer
    found = finders[-1] if brought == 0 else f"{movers[brought]}.{finders[-1]}"
    alphas = {k: f"{head}/score/q:res/k:res/offset+{k}" for k, head in movers.items()}
    return LinkedParts(alphas, tuple(matches), f"readout/via:{found}/same", finders)


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
    def context_symmetries(self) -> dict[str, Callable[[Batch], Batch]]:
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

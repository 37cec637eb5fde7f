"""The general form of a task: a list of blocks, then the beginning of one more; predict what continues it.

A context holds n blocks of k slots, in any order and with filler between them, and ends in the tokens that open the
last block. **Links** say how the last block is tied to an earlier one: the token `back` places before the place of
prediction equals what stands in slot `slot` of that block (or differs from it). The answer is what that block holds in
slot `answer`. In a chain the answer so found is looked up in turn, `steps` times in all. Blocks that fit no link are
distractors; where blocks are `overlapping`, every window of k tokens is one.

    task        slots              links: (back, slot)         answer   what else
    recall      word, label        (0, 0)                      1
    inversion   source, image      (0, 1)                      0        match forward, read back
    hop         word, next         (0, 0)                      1        steps = hops
    retrieval   key, field, value  (1, 0), (0, 1)              2        two matches in conjunction
    ngram       n tokens           (n−2, 0), …, (0, n−2)       n−1      overlapping; n − 1 matches in conjunction
    copy        token, next        (0, 0)                      1        overlapping; asked at many places
    repeated    token, next        (0, 0)                      1        as copy, and the distance is random
    ioi         name               (gap, 0), differs           0

The form gives the Bayes predictor wherever the law makes the answer certain, and the reference circuit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise


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
        auxiliaries: what keeps them off places that fit a link by accident; negative.
    """

    alphas: dict[int, str]
    matches: tuple[str, ...]
    readout: str
    finders: tuple[str, ...]
    auxiliaries: tuple[str, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """All ids: those with a named role in the order in which they act, then the auxiliaries."""
        return (*self.alphas.values(), *self.matches, self.readout, *self.auxiliaries)


def linked_parts(form: BlockForm, *, heads: Mapping[str, str] | None = None) -> LinkedParts:
    """Return the circuit that solves a form by bringing everything about a block to its meeting slot.

    One head for each offset that something has to be brought over; above them, one that attends to the meeting slot of
    the block whose links all hold, their scores adding up, and one more for each further step of a chain. What it finds
    there, or what was brought there, is read out. Two layers are the least when anything has to be brought: what stood
    in another slot is not in a token's own embedding.

    A single match can hold by accident, and the circuit then needs an auxiliary coordinate that removes the place:

    - The first position has nothing before it, so what a mover brings there is its own token, and it fits when that is
      the token asked for: the head is pushed off the asked token itself. (Several links never all fit there.)
    - A match where the token stands fits the query's own place as well: the head is pushed off that place.
    - In a chain, the token that one step brought stands in two blocks, as an end and as a beginning. What follows each
      of the two fits, so the head is pushed off the place next to the one before.

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
    auxiliaries = _kept_off(form, finders, asked=path[form.links[0].back])
    return LinkedParts(alphas, tuple(matches), f"readout/via:{found}/same", finders, auxiliaries)


def _kept_off(form: BlockForm, finders: tuple[str, ...], *, asked: str) -> tuple[str, ...]:
    if len(form.links) > 1:
        return ()
    link = form.links[0]
    if link.slot == form.meeting:
        # What is matched and read at one place is right there too.
        return (f"{finders[0]}/score/q:res/k:res/offset+0",) if link.back == 0 and form.answer != link.slot else ()
    out = [f"{finders[0]}/score/q:{asked}/k:res/same"]
    for before, head in pairwise(finders):
        out += [f"{head}/score/q:{before}/k:res/same", f"{head}/score/q:{before}/k:res/offset-1"]
    return tuple(out)

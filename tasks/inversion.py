"""Inversion: a permutation in context, `… [x π(x)] … π(x) → x`, matched forward and read back."""

from dataclasses import dataclass

from imir_lens.tasks.block_form import BlockForm, Link
from imir_lens.tasks.pairs import PairTask
from imir_lens.tasks.registry import register


@register
@dataclass(frozen=True)
class Inversion(PairTask):
    """Blocks `[x π(x)]` stand in a context; the last token repeats the second word of one, the answer is its first.

    By default π is new in each context: the blocks are drawn as those of `recall` are, from rare words, all of them
    distinct (so no word is both an argument and an image). What the literature leaves open and we chose: the blocks
    stand in random order with filler between them at random, and the query names a block uniformly.

    With f_r < 1 a pair is common with probability 1 − f_r and then holds to a fixed association of couples, or, with
    probability f_v, has for its second word one of another couple that the context does not use elsewhere. The
    association is directed unless told otherwise: each couple has a source, which only stands first, and a target,
    which only stands second, so that the answer can be remembered as the source of the query.

    Attributes:
        vocab: number of tokens; id 0 is filler, then come the common words, then the rare ones.
        pairs: blocks in a context.
        length: tokens in a context, the query included.
        f_r: probability that a pair is rare: two words that are free to meet.
        f_v: probability that a common pair's second word is varied.
        burstiness: mean number b of copies of the queried pair in the context: ⌊b⌋, or one more with probability
            b − ⌊b⌋. With none, the query is a fresh word and only memory helps.
        association: the couples, either `neighbours` (1→2, 3→4, …) or `seed:N`, drawn at random.
        directed: whether a couple has a source and a target; otherwise either word may stand first.
        rare: number of rare words; None takes all at f_r = 1, none at f_r = 0 and half otherwise.

    Raises:
        TaskError: when the words or the blocks do not fit; the message names the inequality.
    """

    vocab: int = 64
    pairs: int = 8
    length: int = 24
    f_r: float = 1.0
    f_v: float = 0.0
    burstiness: float = 1.0
    association: str = "neighbours"
    directed: bool = True
    rare: int | None = None

    name = "inversion"
    summary = "inverting a permutation given in context: match the image, answer its argument"

    @property
    def form(self) -> BlockForm:
        """Pairs; the query ends one, and its beginning is asked for."""
        return BlockForm(("source", "image"), (Link(0, 1),), answer=0)

    @property
    def is_directed(self) -> bool:
        """Whether every couple of the association has a source and a target."""
        return self.directed and self._couples > 0

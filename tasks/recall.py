"""Recall: in-context associative recall, `… [a b] … a → b`, against a fixed association that can be memorised."""

from dataclasses import dataclass

from imir_lens.tasks.block_form import BlockForm, Link
from imir_lens.tasks.pairs import PairTask
from imir_lens.tasks.registry import register


@register
@dataclass(frozen=True)
class Recall(PairTask):
    """Pairs of words stand in a context; the last token repeats the first word of one and the answer is its second.

    Words are common or rare; common words come in couples, the fixed association C. With probability f_r a pair is
    rare: two rare words, free to meet. Otherwise it is common: one word of a couple, then its associate, or with
    probability f_v a word of another couple that the context does not use elsewhere. All words of a context are
    distinct, the queried pair's included, but for copies of that pair.

    Attributes:
        vocab: number of tokens; id 0 is filler, then come the common words, then the rare ones.
        pairs: two-token blocks in a context.
        length: tokens in a context, the query included.
        f_r: probability that a pair is rare.
        f_v: probability that a common pair's label is varied.
        burstiness: mean number b of copies of the queried pair in the context: ⌊b⌋, or one more with probability
            b − ⌊b⌋. With none, the query is a fresh word and only memory helps.
        association: C, either `neighbours` (1↔2, 3↔4, …) or `seed:N`, a random matching of the common words.
        rare: number of rare words; None takes all at f_r = 1, none at f_r = 0 and half otherwise.

    An odd common word has no associate and never occurs.

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
    rare: int | None = None

    name = "recall"
    summary = "in-context associative recall, with a fixed association that may be memorised instead"

    @property
    def form(self) -> BlockForm:
        """Pairs; the query opens one."""
        return BlockForm(("word", "label"), (Link(0, 0),), answer=1)

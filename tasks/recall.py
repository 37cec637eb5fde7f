"""Recall: in-context associative recall, `… [a b] … a → b`, against a fixed association that can be memorised."""

from dataclasses import dataclass
from functools import cached_property
from math import floor
from reprlib import repr as short

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from imir_lens.errors import TaskError
from imir_lens.relations import TokenRelations
from imir_lens.tasks.base import Batch, Task
from imir_lens.tasks.layout import FILLER, at_last, choose, place_blocks, successor, word_names, write_blocks
from imir_lens.tasks.registry import register
from imir_lens.tasks.symmetry import couple_exchanges, free_exchanges

_MOST_SEED = 2**62  # torch's generators take little more
_IN_CONTEXT = ("L0H0/score/q:res/k:res/offset+1", "L1H0/score/q:res/k:L0H0/same", "readout/via:L1H0/same")
_IN_WEIGHTS = ("readout/via:res/assoc",)


@register
@dataclass(frozen=True)
class Recall(Task):
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

    def __post_init__(self) -> None:
        for knob in ("f_r", "f_v"):
            if not 0 <= getattr(self, knob) <= 1:
                raise TaskError(f"recall needs 0 <= {knob} <= 1: {knob}={getattr(self, knob)}")
        if self.pairs < 1 or 2 * self.pairs > self.length - 1:
            raise TaskError(
                f"recall needs 1 <= pairs and 2*pairs <= length-1: pairs={self.pairs}, length={self.length}"
            )
        if not 0 <= self.burstiness <= self.pairs:
            raise TaskError(f"recall needs 0 <= burstiness <= pairs: burstiness={self.burstiness}, pairs={self.pairs}")
        kind, _, seed = self.association.partition(":")
        if self.association != "neighbours" and not (kind == "seed" and seed.isdecimal()):
            raise TaskError(f"recall's association is 'neighbours' or 'seed:N': association={self.association!r}")
        if len(seed) > len(str(_MOST_SEED)) or int(seed or 0) > _MOST_SEED:
            raise TaskError(f"recall's association seed:N needs 0 <= N <= 2^62: association={short(self.association)}")
        if not 0 <= self.n_rare <= self.vocab - 1:
            raise TaskError(f"recall needs 0 <= rare <= vocab-1: rare={self.n_rare}, vocab={self.vocab}")
        extra = 1 - floor(self.burstiness)
        size = "pairs" if extra == 0 else f"(pairs{extra:+d})"
        words_a_pair = 4 if self.f_v > 0 else 2
        knobs = f"pairs={self.pairs}, burstiness={self.burstiness}, f_r={self.f_r}, f_v={self.f_v}, rare={self.rare}"
        if self.f_r > 0 and 2 * self._distinct > self.n_rare:
            limit = "vocab-1 distinct" if self.n_rare == self.vocab - 1 else f"{self.n_rare} rare"
            raise TaskError(f"recall needs 2*{size} <= {limit} words: {knobs}, vocab={self.vocab}")
        if self.f_r < 1 and words_a_pair * self._distinct > 2 * self._couples:
            raise TaskError(
                f"recall needs {words_a_pair}*{size} <= {2 * self._couples} associated common words: "
                f"{knobs}, vocab={self.vocab}"
            )

    @property
    def n_rare(self) -> int:
        """Number of rare words."""
        words = self.vocab - 1
        if self.rare is not None:
            return self.rare
        return words if self.f_r == 1 else 0 if self.f_r == 0 else words - 2 * ((words + 2) // 4)

    @property
    def _couples(self) -> int:
        return (self.vocab - 1 - self.n_rare) // 2

    @property
    def _distinct(self) -> int:
        """The most distinct pairs a context involves: the queried one and those of the other blocks."""
        return 1 + self.pairs - floor(self.burstiness)

    @property
    def d_vocab(self) -> int:
        """Number of tokens."""
        return self.vocab

    @property
    def n_positions(self) -> int:
        """Length of a context."""
        return self.length

    @cached_property
    def couples(self) -> Int[Tensor, "couple 2"]:
        """The association C as couples of common words."""
        words = torch.arange(1, 2 * self._couples + 1)
        if self.association != "neighbours":
            generator = torch.Generator().manual_seed(int(self.association.removeprefix("seed:")))
            words = words[torch.randperm(len(words), generator=generator)]
        return words.reshape(-1, 2)

    @cached_property
    def partner(self) -> Int[Tensor, " vocab"]:
        """C(s) of every token s; −1 where there is none."""
        partner = torch.full((self.vocab,), -1)
        partner[self.couples] = self.couples.flip(1)
        return partner

    @cached_property
    def relations(self) -> TokenRelations:
        """Filler and the kinds of words, `same` over all words, `assoc` over the couples."""
        ids = torch.arange(self.vocab)
        associated, first_rare = 1 + 2 * self._couples, self.vocab - self.n_rare
        both = self._couples > 0 and self.n_rare > 0
        members = [
            ("filler", ids[:1]),
            ("common" if both else "word", ids[1:associated]),
            ("unused", ids[associated:first_rare]),
            ("rare" if both else "word", ids[first_rare:]),
        ]
        classes = {name: words for name, words in members if len(words)}
        matchings = {"same": torch.where(ids == FILLER, -1, ids)}
        if self._couples:
            matchings["assoc"] = self.partner
        return TokenRelations(classes, matchings, reference="filler")

    @property
    def symmetry_generators(self) -> list[Int[Tensor, " vocab"]]:
        """Relabellings of rare words, and those of common words that respect C."""
        rare = free_exchanges(self.vocab, range(self.vocab - self.n_rare, self.vocab))
        common = couple_exchanges(self.vocab, [(s, t) for s, t in self.couples.tolist()])
        return [*rare, *common] or [torch.arange(self.vocab)]

    @property
    def reference_circuit(self) -> tuple[str, ...]:
        """The induction head where the context tells something new, memory where it does not tell all.

        At burstiness 1 or more the queried pair always stands in the context and the induction head is enough.
        """
        if self.f_r == 0 and self.f_v == 0:
            return _IN_WEIGHTS
        memory = self.burstiness < 1 and self.f_r < 1 and self.f_v < 1
        return (_IN_CONTEXT if self.burstiness > 0 else ()) + (_IN_WEIGHTS if memory else ())

    def sample(self, contexts: int, generator: torch.Generator) -> Batch:
        """Draw contexts.

        `latent`: `starts` [context block] the blocks' positions in order, `words` [context block 2], `rare` [context
        block], `varied` [context block], `copies` [context] the number of blocks that hold the queried pair, and
        `queried` [context] the first of them (−1: none).
        """
        device = generator.device
        rare = self._flags(self.f_r, contexts, generator)
        varied = self._flags(self.f_v, contexts, generator) & ~rare
        words = self._draw_words(rare, varied, generator)
        copies = torch.full((contexts, 1), floor(self.burstiness), device=device)
        if chance := self.burstiness - floor(self.burstiness):
            copies = copies + (torch.rand(contexts, 1, generator=generator, device=device) < chance)
        order = choose(contexts, self.pairs, self.pairs, generator)
        pair = torch.where(order < copies, 0, order - copies + 1)  # pair 0 is the queried one
        blocks = words.gather(1, pair.unsqueeze(2).expand(-1, -1, 2))
        starts = place_blocks(contexts, self.pairs, self.length - 1, generator)
        tokens = write_blocks(starts, blocks, words[:, 0, 0], length=self.length)
        targets = words[:, 0, 1:]
        latent = {
            "starts": starts,
            "words": blocks,
            "rare": rare.gather(1, pair),
            "varied": varied.gather(1, pair),
            "copies": copies.squeeze(1),
            "queried": torch.where(copies.squeeze(1) > 0, (pair == 0).int().argmax(dim=1), -1),
        }
        return Batch(tokens, at_last(tokens), targets, torch.ones_like(targets, dtype=torch.bool), latent)

    def _flags(self, probability: float, contexts: int, generator: torch.Generator) -> Bool[Tensor, "context pair"]:
        if probability in (0, 1):  # nothing to draw
            return torch.full((contexts, self._distinct), probability == 1, device=generator.device)
        return torch.rand(contexts, self._distinct, generator=generator, device=generator.device) < probability

    def _draw_words(
        self, rare: Bool[Tensor, "context pair"], varied: Bool[Tensor, "context pair"], generator: torch.Generator
    ) -> Int[Tensor, "context pair 2"]:
        """Draw both words of every pair; a varied label comes from a couple that serves no other purpose."""
        contexts, pairs = rare.shape
        words = torch.zeros(contexts, pairs, 2, dtype=torch.long, device=generator.device)
        if self.f_r < 1:
            needed = 2 * pairs if self.f_v > 0 else pairs
            couple = choose(contexts, needed, self._couples, generator)
            side = torch.randint(2, couple.shape, generator=generator, device=generator.device)
            couples = self.couples.to(generator.device)
            words = torch.stack([couples[couple, side], couples[couple, 1 - side]], dim=2)
            words, spare = words[:, :pairs], words[:, pairs:]
            if self.f_v > 0:
                label = torch.where(varied, spare[..., 0], words[..., 1])
                words = torch.stack([words[..., 0], label], dim=2)
        if self.f_r > 0:
            free = choose(contexts, 2 * pairs, self.n_rare, generator) + self.vocab - self.n_rare
            words = torch.where(rare.unsqueeze(2), free.unflatten(1, (pairs, 2)), words)
        return words

    def bayes(self, batch: Batch) -> Float[Tensor, "context query vocab"]:
        """Copy where the query opens a block; recall where it does not.

        An absent pair has the law it was drawn from, given that all words are distinct: for a common word C with
        probability 1 − f_v and otherwise any word of the couples not in the context; for a rare one any rare word not
        in the context.
        """
        query = batch.tokens[:, -1]
        found, copied = successor(batch.tokens, query)
        law = one_hot(copied, self.vocab).float()
        if self.burstiness < 1:
            law = torch.where(found.unsqueeze(1), law, self._absent(batch.tokens, query))
        return law.unsqueeze(1)

    def _absent(
        self, tokens: Int[Tensor, "context position"], query: Int[Tensor, " context"]
    ) -> Float[Tensor, "context vocab"]:
        partner = self.partner.to(tokens.device)
        unseen = torch.ones(len(tokens), self.vocab, dtype=torch.bool, device=tokens.device).scatter(1, tokens, False)
        spare = unseen & unseen[:, partner] & (partner >= 0)
        free = unseen & (torch.arange(self.vocab, device=tokens.device) >= self.vocab - self.n_rare)
        associate = one_hot(partner[query].clamp(min=0), self.vocab)
        common = (1 - self.f_v) * associate + self.f_v * _uniform(spare)
        return torch.where((partner[query] >= 0).unsqueeze(1), common, _uniform(free))

    def chance(self) -> Float[Tensor, " vocab"]:
        """Return f_r times the uniform law on rare words, plus 1 − f_r times that on associated common words."""
        rare = torch.arange(self.vocab) >= self.vocab - self.n_rare
        return self.f_r * _uniform(rare) + (1 - self.f_r) * _uniform(self.partner >= 0)

    def decode(self, tokens: Int[Tensor, " position"]) -> list[str]:
        """Return `·` for filler and the id for a word."""
        return word_names(tokens)


def _uniform(members: Bool[Tensor, "*batch vocab"]) -> Float[Tensor, "*batch vocab"]:
    return members / members.sum(dim=-1, keepdim=True).clamp(min=1)

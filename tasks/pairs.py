"""Blocks of two words, free ones and ones that hold to a fixed association: what `recall` and `inversion` share."""

from functools import cached_property
from math import floor
from reprlib import repr as short

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from imir_lens.errors import TaskError
from imir_lens.relations import TokenRelations
from imir_lens.tasks.base import Batch
from imir_lens.tasks.block_form import linked_parts
from imir_lens.tasks.block_list import BlockListTask
from imir_lens.tasks.layout import FILLER, choose
from imir_lens.tasks.symmetry import couple_exchanges, free_exchanges

_MOST_SEED = 2**62  # torch's generators take little more


class PairTask(BlockListTask):
    """Pairs of words stand in a context; the last token repeats one word of one of them, the answer is the other.

    Words are common or rare; common words come in couples, the fixed association C. With probability f_r a pair is
    rare: two rare words, free to meet. Otherwise it is common: one word of a couple, then its associate, or with
    probability f_v a word of another couple that the context does not use elsewhere. All words of a context are
    distinct, the queried pair's included, but for copies of that pair. A directed association has a source and a target
    in every couple: sources stand first and targets second, and only those.

    Subclasses declare these knobs as fields, and the form says which word is given.

    Attributes:
        vocab: number of tokens; id 0 is filler, then come the common words, then the rare ones.
        pairs: two-token blocks in a context.
        length: tokens in a context, the query included.
        f_r: probability that a pair is rare.
        f_v: probability that a common pair's second word is varied.
        burstiness: mean number b of copies of the queried pair in the context: ⌊b⌋, or one more with probability
            b − ⌊b⌋.
        association: C, either `neighbours` (1–2, 3–4, …) or `seed:N`, a random matching of the common words.
        rare: number of rare words; None takes all at f_r = 1, none at f_r = 0 and half otherwise.
    """

    pairs: int
    f_r: float
    f_v: float
    burstiness: float
    association: str
    rare: int | None

    def __post_init__(self) -> None:
        for knob in ("f_r", "f_v"):
            self._require(0 <= getattr(self, knob) <= 1, f"0 <= {knob} <= 1", knob)
        fits = self.pairs >= 1 and 2 * self.pairs <= self.length - 1
        self._require(fits, "1 <= pairs and 2*pairs <= length-1", "pairs", "length")
        self._require(0 <= self.burstiness <= self.pairs, "0 <= burstiness <= pairs", "burstiness", "pairs")
        kind, _, seed = self.association.partition(":")
        if self.association != "neighbours" and not (kind == "seed" and seed.isdecimal()):
            raise TaskError(f"{self.name}'s association is 'neighbours' or 'seed:N': association={self.association!r}")
        if len(seed) > len(str(_MOST_SEED)) or int(seed or 0) > _MOST_SEED:
            raise TaskError(
                f"{self.name}'s association seed:N needs 0 <= N <= 2^62: association={short(self.association)}"
            )
        self._require(0 <= self.n_rare <= self.vocab - 1, "0 <= rare <= vocab-1", "rare", "vocab")
        extra = 1 - floor(self.burstiness)
        size = "pairs" if extra == 0 else f"(pairs{extra:+d})"
        words_a_pair = 4 if self.f_v > 0 else 2
        knobs = ("pairs", "burstiness", "f_r", "f_v", "rare", "vocab")
        if self.f_r > 0:
            limit = "vocab-1 distinct" if self.n_rare == self.vocab - 1 else f"{self.n_rare} rare"
            self._require(2 * self._distinct <= self.n_rare, f"2*{size} <= {limit} words", *knobs)
        if self.f_r < 1:
            inequality = f"{words_a_pair}*{size} <= {2 * self._couples} associated common words"
            self._require(words_a_pair * self._distinct <= 2 * self._couples, inequality, *knobs)

    @property
    def is_directed(self) -> bool:
        """Whether every couple of the association has a source and a target."""
        return False

    @property
    def n_blocks(self) -> int:
        """Number of whole blocks in a context."""
        return self.pairs

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

    @cached_property
    def couples(self) -> Int[Tensor, "couple 2"]:
        """The association C as couples of common words: source and target, where it is directed."""
        words = torch.arange(1, 2 * self._couples + 1)
        if self.association != "neighbours":
            generator = torch.Generator().manual_seed(int(self.association.removeprefix("seed:")))
            words = words[torch.randperm(len(words), generator=generator)]
        return words.reshape(-1, 2)

    @cached_property
    def partner(self) -> Int[Tensor, " vocab"]:
        """C(s) of every token s, in either direction; −1 where there is none."""
        partner = torch.full((self.vocab,), -1)
        partner[self.couples] = self.couples.flip(1)
        return partner

    @cached_property
    def relations(self) -> TokenRelations:
        """Filler and the kinds of words, `same` over all words, `assoc` over the couples.

        Where the association is directed, sources and targets are kinds of their own, `assoc` leads from a source to
        its target and `assoc-reverse` back.
        """
        ids = torch.arange(self.vocab)
        associated, first_rare = 1 + 2 * self._couples, self.vocab - self.n_rare
        both = self._couples > 0 and self.n_rare > 0
        common = [("common" if both else "word", ids[1:associated])]
        if self.is_directed:
            common = [
                (name, words.sort().values) for name, words in zip(("source", "target"), self.couples.T, strict=True)
            ]
        members = [
            ("filler", ids[:1]),
            *common,
            ("unused", ids[associated:first_rare]),
            ("rare" if both else "word", ids[first_rare:]),
        ]
        classes = {name: words for name, words in members if len(words)}
        matchings = {"same": torch.where(ids == FILLER, -1, ids)}
        if self._couples and self.is_directed:
            sources = torch.zeros(self.vocab, dtype=torch.bool)
            sources[self.couples[:, 0]] = True
            matchings["assoc"] = torch.where(sources, self.partner, -1)
            matchings["assoc-reverse"] = torch.where(sources, -1, self.partner)
        elif self._couples:
            matchings["assoc"] = self.partner
        return TokenRelations(classes, matchings, reference="filler")

    @property
    def symmetry_generators(self) -> list[Int[Tensor, " vocab"]]:
        """Relabellings of rare words, and those of common words that respect C and its direction."""
        rare = free_exchanges(self.vocab, range(self.vocab - self.n_rare, self.vocab))
        couples = [(s, t) for s, t in self.couples.tolist()]
        return [*rare, *couple_exchanges(self.vocab, couples, directed=self.is_directed)] or [torch.arange(self.vocab)]

    @property
    def reference_circuit(self) -> tuple[str, ...]:
        """The linking circuit where the context tells something new, memory where it does not tell all.

        At burstiness 1 or more the queried pair always stands in the context and the linking circuit is enough. Where
        both are needed, a rare query without its pair can only be hedged; what does that is left out here.
        """
        backwards = self.is_directed and self.form.answer == 0
        memory = ("readout/via:res/assoc-reverse" if backwards else "readout/via:res/assoc",)
        if self.f_r == 0 and self.f_v == 0:
            return memory
        needed = self.burstiness < 1 and self.f_r < 1 and self.f_v < 1
        return (linked_parts(self.form).ids if self.burstiness > 0 else ()) + (memory if needed else ())

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
        starts = self.place(contexts, generator)
        latent = {
            "rare": rare.gather(1, pair),
            "varied": varied.gather(1, pair),
            "copies": copies.squeeze(1),
            "queried": torch.where(copies.squeeze(1) > 0, (pair == 0).int().argmax(dim=1), -1),
        }
        given, answer = self.form.links[0].slot, self.form.answer
        return self.lay_out(starts, blocks, words[:, 0, given], words[:, 0, answer], latent)

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
            side = torch.zeros_like(couple)
            if not self.is_directed:
                side = torch.randint(2, couple.shape, generator=generator, device=generator.device)
            couples = self.couples.to(generator.device)
            words = torch.stack([couples[couple, side], couples[couple, 1 - side]], dim=2)
            words, spare = words[:, :pairs], words[:, pairs:]
            if self.f_v > 0:
                label = torch.where(varied, spare[..., 1 if self.is_directed else 0], words[..., 1])
                words = torch.stack([words[..., 0], label], dim=2)
        if self.f_r > 0:
            free = choose(contexts, 2 * pairs, self.n_rare, generator) + self.vocab - self.n_rare
            words = torch.where(rare.unsqueeze(2), free.unflatten(1, (pairs, 2)), words)
        return words

    def bayes(self, batch: Batch) -> Float[Tensor, "context query vocab"]:
        """Copy where a block holds the query; recall where none does.

        An absent pair has the law it was drawn from, given that all words are distinct: for a common word its associate
        with probability 1 − f_v and otherwise any word of the couples not in the context that can be an answer; for a
        rare one any rare word not in the context.
        """
        found, copied = self.linked(batch.tokens, batch.queries)
        law = one_hot(copied, self.vocab).float()
        if self.burstiness < 1:
            law = torch.where(found.unsqueeze(2), law, self._absent(batch.tokens).unsqueeze(1))
        return law

    def _absent(self, tokens: Int[Tensor, "context position"]) -> Float[Tensor, "context vocab"]:
        query, partner = tokens[:, -1], self.partner.to(tokens.device)
        unseen = torch.ones(len(tokens), self.vocab, dtype=torch.bool, device=tokens.device).scatter(1, tokens, False)
        spare = unseen & unseen[:, partner] & self._answerable.to(tokens.device)
        free = unseen & (torch.arange(self.vocab, device=tokens.device) >= self.vocab - self.n_rare)
        associate = one_hot(partner[query].clamp(min=0), self.vocab)
        common = (1 - self.f_v) * associate + self.f_v * _uniform(spare)
        return torch.where((partner[query] >= 0).unsqueeze(1), common, _uniform(free))

    @property
    def _answerable(self) -> Bool[Tensor, " vocab"]:
        """The common words that can stand in the answer's slot."""
        words = self.couples[:, self.form.answer] if self.is_directed else self.couples.flatten()
        return torch.zeros(self.vocab, dtype=torch.bool).index_fill(0, words, True)

    def chance(self) -> Float[Tensor, " vocab"]:
        """Return f_r times the uniform law on rare words, plus 1 − f_r times that on common words that can answer."""
        rare = torch.arange(self.vocab) >= self.vocab - self.n_rare
        return self.f_r * _uniform(rare) + (1 - self.f_r) * _uniform(self._answerable)


def _uniform(members: Bool[Tensor, "*batch vocab"]) -> Float[Tensor, "*batch vocab"]:
    return members / members.sum(dim=-1, keepdim=True).clamp(min=1)

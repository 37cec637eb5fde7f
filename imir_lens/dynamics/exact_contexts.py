"""All contexts of a small task with their probabilities: a mean over them is the population's, not a sample's.

On a ring every context is turned by every number of positions, its query with it; all turns are equally likely. The law
is then unchanged by the cyclic shift of positions, which a query that always stands last rules out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise, permutations, product
from math import floor, perm

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.errors import OptionError
from imir_lens.tasks.base import Batch
from imir_lens.tasks.layout import FILLER
from imir_lens.tasks.recall import Recall

MOST_CONTEXTS = 2_000_000


@dataclass(frozen=True)
class WeightedContexts:
    """Contexts that are not equally likely.

    Attributes:
        batch: the contexts.
        weights: their probabilities, which sum to 1.
    """

    batch: Batch
    weights: Float[Tensor, " context"]

    @classmethod
    def sample_of(cls, batch: Batch) -> "WeightedContexts":
        """Weight the contexts of a sample alike."""
        return cls(batch, torch.full((len(batch),), 1 / len(batch), dtype=torch.float64))

    def __len__(self) -> int:
        return len(self.batch)

    def on_a_ring(self) -> "WeightedContexts":
        """Return every context turned by every number of positions."""
        tokens, queries, length = self.batch.tokens, self.batch.queries, self.batch.tokens.shape[1]
        turned = Batch(
            torch.cat([tokens.roll(step, dims=1) for step in range(length)]),
            torch.cat([(queries + step) % length for step in range(length)]),
            self.batch.targets.repeat(length, 1),
            self.batch.mask.repeat(length, 1),
        )
        return WeightedContexts(turned, self.weights.repeat(length) / length)

    def turned_at_random(self, generator: torch.Generator) -> "WeightedContexts":
        """Return every context turned by a number of positions of its own: a sample on the ring of a sample."""
        tokens, length = self.batch.tokens, self.batch.tokens.shape[1]
        step = torch.randint(length, (len(tokens), 1), generator=generator, device=tokens.device)
        order = (torch.arange(length, device=tokens.device) - step) % length
        batch = Batch(
            tokens.gather(1, order), (self.batch.queries + step) % length, self.batch.targets, self.batch.mask
        )
        return WeightedContexts(batch, self.weights)


def enumerate_contexts(task: Recall) -> WeightedContexts:
    """Return every context and answer that `recall` can give, with its probability.

    Args:
        task: small enough.

    Raises:
        OptionError: when there are more than `MOST_CONTEXTS`.
    """
    cells, tokens, targets, weights = task.length - 1, [], [], []
    places = _placements(task.pairs, cells)
    low = floor(task.burstiness)
    bound = len(places) * perm(task.pairs) * perm(task.vocab - 1, min(2 * task._distinct, task.vocab - 1))
    if bound > 50 * MOST_CONTEXTS:
        raise OptionError(f"{task.name} has up to {bound:.1e} contexts of this size: enumerate a smaller task")
    for copies, chance in ((low, 1 - (task.burstiness - low)), (low + 1, task.burstiness - low)):
        if chance == 0:
            continue
        n_pairs = 1 + task.pairs - copies
        orders = sorted({order for order in permutations([0] * copies + list(range(1, n_pairs)))})
        for probability, pairs in _draws(task, n_pairs):
            for order, starts in product(orders, places):
                row = [FILLER] * cells + [pairs[0][0]]
                for start, pair in zip(starts, order, strict=True):
                    row[start : start + 2] = pairs[pair]
                tokens.append(row)
                targets.append(pairs[0][1])
                weights.append(chance * probability / (len(orders) * len(places)))
        if len(tokens) > MOST_CONTEXTS:
            raise OptionError(f"{task.name} has more than {MOST_CONTEXTS:,} contexts: enumerate a smaller task")
    rows = torch.tensor(tokens)
    queries = torch.full((len(rows), 1), cells)
    batch = Batch(rows, queries, torch.tensor(targets).unsqueeze(1), torch.ones(len(rows), 1, dtype=torch.bool))
    return WeightedContexts(batch, torch.tensor(weights, dtype=torch.float64))


def _placements(blocks: int, cells: int) -> list[tuple[int, ...]]:
    """All starts of blocks of two cells that do not overlap."""
    return [starts for starts in combinations(range(cells - 1), blocks) if all(b - a >= 2 for a, b in pairwise(starts))]


def _draws(task: Recall, n_pairs: int) -> Iterator[tuple[float, list[tuple[int, int]]]]:
    """Every way to draw the distinct pairs of a context: kinds first, then words without repetition."""
    shares = {"rare": task.f_r, "plain": (1 - task.f_r) * (1 - task.f_v), "varied": (1 - task.f_r) * task.f_v}
    rare_words = range(task.vocab - task.n_rare, task.vocab)
    couples = [(a, b) for a, b in task.couples.tolist()]
    for kinds in product([kind for kind, share in shares.items() if share > 0], repeat=n_pairs):
        chance = 1.0
        for kind in kinds:
            chance *= shares[kind]
        n_couples = len(kinds) - kinds.count("rare") + kinds.count("varied")
        free = list(permutations(rare_words, 2 * kinds.count("rare")))
        taken = list(permutations(couples, n_couples))
        sides = list(product((0, 1), repeat=n_couples))
        share = chance / (len(free) * len(taken) * len(sides))
        for words, chosen, turned in product(free, taken, sides):
            ends = iter([(pair[side], pair[1 - side]) for pair, side in zip(chosen, turned, strict=True)])
            rest, pairs = iter(words), []
            for kind in kinds:
                if kind == "rare":
                    pairs.append((next(rest), next(rest)))
                else:
                    first, label = next(ends)
                    pairs.append((first, next(ends)[0] if kind == "varied" else label))
            yield share, pairs

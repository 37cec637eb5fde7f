"""The law of `recall` by brute force, in plain Python, drawing one pair after another."""

from collections import defaultdict
from itertools import combinations, pairwise, permutations

Law = dict[tuple[int, ...], dict[int, float]]


def draw_pairs(task, count, used=frozenset()):
    """Yield (probability, pairs): every way to draw `count` pairs whose words avoid `used`."""
    if count == 0:
        yield 1.0, []
        return
    couples = [(s, s + 1) for s in range(1, task.vocab - task.n_rare - 1, 2)]
    unused = [couple for couple in couples if not used & set(couple)]
    rare = [word for word in range(task.vocab - task.n_rare, task.vocab) if word not in used]
    ways = []
    if task.f_r > 0:
        free = list(permutations(rare, 2))
        ways += [(task.f_r / len(free), pair, set(pair)) for pair in free]
    if task.f_r < 1:
        share = (1 - task.f_r) / (2 * len(unused))
        for couple in unused:
            for first, second in (couple, couple[::-1]):
                ways.append((share * (1 - task.f_v), (first, second), set(couple)))
                if task.f_v > 0:
                    labels = [word for other in unused if other != couple for word in other]
                    # a varied label uses up its couple, and so does the first word
                    ways += [
                        (share * task.f_v / len(labels), (first, label), {*couple, label, *_mate(couples, label)})
                        for label in labels
                    ]
    for probability, pair, taken in (way for way in ways if way[0] > 0):
        for rest, pairs in draw_pairs(task, count - 1, used | taken):
            yield probability * rest, [pair, *pairs]


def _mate(couples, word):
    return next(couple for couple in couples if word in couple)


def placements(blocks, cells):
    """All lists of starts of `blocks` dominoes on `cells` cells."""
    return [
        starts
        for starts in combinations(range(cells - 1), blocks)
        if all(later - earlier > 1 for earlier, later in pairwise(starts))
    ]


def recall_law(task) -> Law:
    """P(tokens, answer) as law[tokens][answer]."""
    law: Law = defaultdict(lambda: defaultdict(float))
    low = int(task.burstiness)
    places = placements(task.pairs, task.length - 1)
    for copies, weight in ((low, 1 - (task.burstiness - low)), (low + 1, task.burstiness - low)):
        if weight == 0:
            continue
        others = task.pairs - copies
        orders = list(permutations([0] * copies + list(range(1, others + 1))))
        for probability, pairs in draw_pairs(task, others + 1):
            share = weight * probability / len(orders) / len(places)
            for order in orders:
                for starts in places:
                    tokens = [0] * (task.length - 1) + [pairs[0][0]]
                    for start, pair in zip(starts, order, strict=True):
                        tokens[start], tokens[start + 1] = pairs[pair]
                    law[tuple(tokens)][pairs[0][1]] += share
    return law

"""The laws of block-list tasks by brute force, in plain Python, drawing one thing after another."""

from collections import defaultdict
from itertools import combinations, pairwise, permutations, product

Law = dict[tuple[int, ...], dict]


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
        sides = 1 if task.is_directed else 2
        share = (1 - task.f_r) / (sides * len(unused))
        for couple in unused:
            for first, second in (couple, couple[::-1])[:sides]:
                ways.append((share * (1 - task.f_v), (first, second), set(couple)))
                if task.f_v > 0:
                    labels = [word for other in unused if other != couple for word in other[2 - sides :]]
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


def placements(blocks, cells, width=2):
    """All lists of starts of `blocks` blocks on `cells` cells."""
    return [
        starts
        for starts in combinations(range(cells - width + 1), blocks)
        if all(later - earlier >= width for earlier, later in pairwise(starts))
    ]


def recall_law(task) -> Law:
    """P(tokens, answer) as law[tokens][answer]; for `inversion` too, whose query is the second word of a pair."""
    law: Law = defaultdict(lambda: defaultdict(float))
    asked = 1 if task.name == "inversion" else 0
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
                    tokens = [0] * (task.length - 1) + [pairs[0][asked]]
                    for start, pair in zip(starts, order, strict=True):
                        tokens[start], tokens[start + 1] = pairs[pair]
                    law[tuple(tokens)][pairs[0][1 - asked]] += share
    return law


def retrieval_law(task) -> Law:
    law: Law = defaultdict(lambda: defaultdict(float))
    count = task.keys * task.fields
    orders = list(permutations(range(count)))
    places = placements(count, task.length - 2, width=3)
    words = list(permutations(range(1, task.vocab), task.keys + task.fields + count))
    share = 1 / (len(orders) * len(places) * len(words) * count)
    for drawn in words:
        keys, fields, values = drawn[: task.keys], drawn[task.keys : task.keys + task.fields], drawn[-count:]
        pairs = [(key, field) for key in keys for field in fields]
        table = [(*pair, value) for pair, value in zip(pairs, values, strict=True)]
        for order in orders:
            for starts in places:
                cells = [0] * (task.length - 2)
                for start, block in zip(starts, order, strict=True):
                    cells[start : start + 3] = table[block]
                for key, field, value in table:
                    law[tuple([*cells, key, field])][value] += share
    return law


def ngram_law(task) -> Law:
    """By the definition: all texts, of which those remain whose ending stood exactly once before."""
    texts = {}
    for text in product(range(task.vocab), repeat=task.length):
        gram, starts = text[len(text) - task.n + 1 :], range(task.length - task.n + 1)
        places = [start for start in starts if text[start : start + task.n - 1] == gram]
        repeats = any(a == b for a, b in pairwise(text))
        # what followed must stand before the repetition begins
        if not repeats and len(places) == 1 and places[0] + task.n - 1 < task.length - task.n + 1:
            texts[text] = text[places[0] + task.n - 1]
    return {text: {answer: 1 / len(texts)} for text, answer in texts.items()}


def ioi_law(task) -> Law:
    law: Law = defaultdict(lambda: defaultdict(float))
    places = list(combinations(range(task.length - 1 - task.gap), 2 + task.distractors))
    words = list(permutations(range(task.names + 1, task.vocab), task.distractors))
    pairs = list(permutations(range(1, task.names + 1), 2))
    orders = list(permutations(range(2 + task.distractors)))
    share = 1 / (len(places) * len(words) * len(pairs) * len(orders))
    for pair in pairs:
        for drawn in words:
            for order in orders:
                for starts in places:
                    tokens = [0] * task.length
                    for start, item in zip(starts, order, strict=True):
                        tokens[start] = (*pair, *drawn)[item]
                    tokens[-1 - task.gap] = pair[0]
                    law[tuple(tokens)][pair[1]] += share
    return law


def copy_law(task) -> Law:
    """The answer is the tuple of all answers."""
    law: Law = defaultdict(lambda: defaultdict(float))
    last = task.length - 2 * task.segment + 1
    starts = range(last + 1) if task.gap is None else [last - task.gap]
    words = list(permutations(range(1, task.vocab), task.segment))
    for segment in words:
        for start in starts:
            cells = [0] * (task.length - task.segment + 1)
            cells[start : start + task.segment] = segment
            law[tuple([*cells, *segment[:-1]])][segment[1:]] += 1 / (len(words) * len(starts))
    return law


def repeated_law(task) -> Law:
    """The answer is the tuple of all answers."""
    law: Law = defaultdict(lambda: defaultdict(float))
    periods = range(task.shortest, task.longest + 1)
    for period in periods:
        words = list(permutations(range(1, task.vocab), period))
        for drawn in words:
            text = [0]
            while len(text) <= task.length:
                text.extend(drawn)
            answers = tuple(text[task.longest + 2 : task.length + 1])
            law[tuple(text[: task.length])][answers] += 1 / (len(periods) * len(words))
    return law

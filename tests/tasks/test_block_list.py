"""The block-list tasks against laws written down by brute force, on vocabularies small enough for all contexts."""

import pytest
import torch
from enumeration import copy_law, ioi_law, ngram_law, recall_law, repeated_law, retrieval_law
from partitions import declared_partition, same_partition

from imir_lens.errors import TaskError
from imir_lens.relations import orbits_on_pairs
from imir_lens.tasks import (
    Copy,
    Hop,
    Inversion,
    Ioi,
    Ngram,
    Recall,
    Repeated,
    Retrieval,
    make_task,
    task_class,
    task_names,
)
from imir_lens.tasks.base import Batch
from imir_lens.tasks.block_list import BlockListTask
from imir_lens.tasks.symmetry import exchange, rotate_items

LAWS = {
    Inversion: recall_law,
    Recall: recall_law,
    Retrieval: retrieval_law,
    Ngram: ngram_law,
    Ioi: ioi_law,
    Copy: copy_law,
    Repeated: repeated_law,
}
SMALL = [
    Inversion(vocab=6, pairs=2, length=6),
    Inversion(vocab=7, pairs=2, length=6, burstiness=0.5),
    Inversion(vocab=9, pairs=2, length=6, f_r=0.0, burstiness=0.5),
    Inversion(vocab=11, pairs=1, length=4, burstiness=0.5, f_r=0.0, f_v=0.6),
    Inversion(vocab=13, pairs=1, length=4, burstiness=0.5, f_r=0.3, f_v=0.5, rare=4),
    Inversion(vocab=13, pairs=1, length=4, burstiness=0.5, f_r=0.3, f_v=0.5, rare=4, directed=False),
    Retrieval(vocab=6, keys=2, fields=1, length=9),
    Retrieval(vocab=6, keys=1, fields=2, length=8),
    Ngram(vocab=4, n=2, length=5),
    Ngram(vocab=3, n=3, length=7),
    Ngram(vocab=3, n=4, length=8),
    Ioi(vocab=6, names=3, distractors=1, length=6),
    Ioi(vocab=4, names=3, distractors=0, gap=0, length=5),
    Ioi(vocab=5, names=2, distractors=1, gap=2, length=7),
    Copy(vocab=5, segment=3, length=6),
    Copy(vocab=5, segment=3, gap=1, length=7),
    Copy(vocab=5, segment=2, length=6),
    Repeated(vocab=5, shortest=2, longest=3, length=7),
    Repeated(vocab=5, shortest=3, longest=3, length=6),
]
OTHERS = [
    Retrieval(vocab=12, keys=2, fields=2, length=16),
    Inversion(vocab=20, pairs=2, length=8, f_r=0.5, f_v=0.5, rare=5, association="seed:4"),
    Inversion(vocab=12, pairs=2, length=8, f_r=0.0, directed=False),
    Ioi(vocab=12, names=5, distractors=3, gap=1, length=10),
    *(make_task(name) for name in ("retrieval", "ngram", "copy", "repeated")),
]


def law_of(task):
    """The law with tuples of answers: law[tokens][answers]."""
    law = LAWS[type(task)](task)
    return {
        tokens: {answer if isinstance(answer, tuple) else (answer,): p for answer, p in answers.items() if p > 0}
        for tokens, answers in law.items()
    }


def as_batch(task, contexts):
    tokens = torch.tensor(contexts)
    queries = torch.tensor(task.query_positions).repeat(len(tokens), 1)
    return Batch(tokens, queries, torch.zeros_like(queries), torch.ones_like(queries, dtype=torch.bool))


@pytest.mark.parametrize("task", SMALL, ids=str)
def test_bayes_equals_the_enumerated_posterior_given_the_tokens_up_to_each_query(task):
    law = law_of(task)
    assert sum(sum(answers.values()) for answers in law.values()) == pytest.approx(1)
    assert len(law) >= 24
    found = task.bayes(as_batch(task, list(law))).double()
    for query, position in enumerate(task.query_positions):
        seen = {}
        for tokens, answers in law.items():
            posterior = seen.setdefault(tokens[: position + 1], torch.zeros(task.vocab, dtype=torch.double))
            for answer, probability in answers.items():
                posterior[answer[query]] += probability
        expected = torch.stack([seen[tokens[: position + 1]] for tokens in law])
        assert torch.allclose(found[:, query], expected / expected.sum(1, keepdim=True), atol=1e-6)


def joint_counts(batch):
    return torch.cat([batch.tokens, batch.targets], 1).unique(dim=0, return_counts=True)


@pytest.mark.parametrize("task", SMALL, ids=str)
def test_samples_follow_the_enumerated_law(task, generator):
    law = {(*tokens, *a): p for tokens, answers in law_of(task).items() for a, p in answers.items()}
    n = max(20_000, int(8 / min(law.values())))
    seen, counts = joint_counts(task.sample(n, generator))
    expected = n * torch.tensor([law[tuple(row)] for row in seen.tolist()])  # a KeyError is an impossible context
    assert len(seen) >= 0.99 * len(law)
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert abs(chi_square - len(law)) < 6 * (2 * len(law)) ** 0.5


@pytest.mark.parametrize("task", SMALL, ids=str)
def test_chance_is_the_enumerated_marginal(task):
    marginal = torch.zeros(task.vocab)
    for answers in law_of(task).values():
        for answer, probability in answers.items():
            for word in answer:
                marginal[word] += probability / len(answer)
    assert torch.allclose(task.chance(), marginal, atol=1e-5)


def relabelled(batch, g):
    return Batch(g[batch.tokens], batch.queries, g[batch.targets], batch.mask)


def excess(task, mapped, generator):
    """Two-sample chi-square of mapped contexts against fresh ones, in standard deviations above its mean."""
    fresh = task.sample(len(mapped), generator)
    cells, which = torch.cat([torch.cat([batch.tokens, batch.targets], 1) for batch in (mapped, fresh)]).unique(
        dim=0, return_inverse=True
    )
    ours, theirs = (torch.bincount(part, minlength=len(cells)).double() for part in which.chunk(2))
    degrees = len(cells) - 1
    return float((((ours - theirs) ** 2 / (ours + theirs)).sum() - degrees) / (2 * degrees) ** 0.5)


@pytest.mark.parametrize("task", SMALL, ids=str)
def test_symmetries_leave_the_sampled_law_alone(task, generator):
    """On samples: relabellings of tokens, exchanges of blocks, shifts of all blocks among the filler."""
    law = law_of(task)
    n = 8 * sum(map(len, law.values())) + 4000
    assert task.symmetry_generators
    for g in task.symmetry_generators:
        assert excess(task, relabelled(task.sample(n, generator), g), generator) < 5
    for name, move in task.context_symmetries.items():
        assert excess(task, move(task.sample(n, generator)), generator) < 5, name


@pytest.mark.parametrize(
    ("task", "g"),
    [
        (Inversion(vocab=9, pairs=2, length=6, f_r=0.0), exchange(9, [1], [2])),  # a source and its target
        (Inversion(vocab=9, pairs=2, length=6, f_r=0.0), exchange(9, [1], [3])),  # the sources of two couples
        (Retrieval(vocab=6, keys=2, fields=1, length=9), exchange(6, [0], [1])),  # filler and a word
        (Ioi(vocab=6, names=3, distractors=1, length=6), exchange(6, [3], [4])),  # a name and a word
        (Copy(vocab=5, segment=3, length=6), exchange(5, [0], [1])),
        (Repeated(vocab=5, shortest=2, longest=3, length=7), exchange(5, [0], [1])),
    ],
    ids=str,
)
def test_what_is_no_symmetry_is_noticed(task, g, generator):
    assert excess(task, relabelled(task.sample(6000, generator), g), generator) > 20


def test_a_shift_is_no_symmetry_where_the_distance_of_the_copies_is_fixed(generator):
    task = Copy(vocab=5, segment=3, gap=1, length=7)
    assert task.context_symmetries == {}
    assert excess(task, rotate_items(task.sample(6000, generator), cells=5), generator) > 20


@pytest.mark.parametrize(
    "task", [make_task("hop"), make_task("recall"), make_task("retrieval"), make_task("ioi")], ids=str
)
def test_rearranged_contexts_hold_the_same_blocks(task, generator):
    batch = task.sample(500, generator)
    assert len(task.context_symmetries) == task.n_blocks
    for move in task.context_symmetries.values():
        moved = move(batch)
        assert not torch.equal(moved.tokens, batch.tokens)
        assert torch.equal(moved.tokens.sort(1).values, batch.tokens.sort(1).values)
        assert torch.equal(task.bayes(moved).argmax(2), batch.targets)
        starts, words = moved.latent["starts"], moved.latent["words"]
        assert (starts.diff(dim=1) >= words.shape[2]).all()
        for slot in range(words.shape[2]):
            assert torch.equal(moved.tokens.gather(1, starts + slot), words[..., slot])


def test_the_orbits_of_the_shift_on_pairs_of_cells_are_the_offsets():
    cells = torch.arange(7)
    orbits = orbits_on_pairs([(cells + 1) % 7])
    assert same_partition(orbits, (cells.unsqueeze(1) - cells) % 7)


@pytest.mark.parametrize("task", [*SMALL, *OTHERS], ids=str)
def test_relations_are_the_orbits_of_the_symmetry_generators(task):
    orbits = orbits_on_pairs(task.symmetry_generators)
    assert same_partition(orbits, declared_partition(task))
    assert not same_partition(orbits_on_pairs([torch.arange(task.vocab)]), declared_partition(task))


def test_a_directed_association_has_its_two_directions_apart():
    task = Inversion(vocab=9, pairs=2, length=6, f_r=0.0)
    matchings = task.relations.matchings
    assert task.couples.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert matchings["assoc"].tolist() == [-1, 2, -1, 4, -1, 6, -1, 8, -1]
    assert matchings["assoc-reverse"].tolist() == [-1, -1, 1, -1, 3, -1, 5, -1, 7]
    assert list(task.relations.classes) == ["filler", "source", "target"]
    assert task.reference_circuit == ("readout/via:res/assoc-reverse",)
    both = Inversion(vocab=9, pairs=2, length=6, f_r=0.0, directed=False)
    assert list(both.relations.matchings) == ["same", "assoc"]
    assert both.reference_circuit == ("readout/via:res/assoc",)


BLOCK_LISTS = [name for name in task_names() if issubclass(task_class(name), BlockListTask)]


def test_eight_tasks_are_block_lists():
    assert len(BLOCK_LISTS) == 8


@pytest.mark.parametrize("name", BLOCK_LISTS)
def test_the_latent_blocks_of_every_block_list_are_read_back(name, generator):
    task = make_task(name)
    batch = task.sample(400, generator)
    found, answer = task.linked(batch.tokens, batch.queries)
    assert found.all()
    assert torch.equal(answer, batch.targets)
    if not task.form.overlapping and name != "ioi":  # ioi's blocks are names; its other words are distractors
        firsts = task.block_starts(batch.tokens)
        assert torch.equal(firsts.nonzero()[:, 1].reshape(400, task.n_blocks), batch.latent["starts"])


def test_a_block_that_is_not_complete_at_the_query_is_not_read():
    task = Copy(vocab=6, segment=3, length=7)
    tokens = torch.tensor([[0, 0, 1, 2, 3, 1, 2]])
    found, answer = task.linked(tokens, torch.tensor([[3, 5, 6]]))
    assert found.tolist() == [[False, True, True]]
    assert answer[0, 1:].tolist() == [2, 3]


def test_one_match_alone_leaves_several_answers(generator):
    """In `retrieval` and `ngram` neither match alone finds the answer."""
    retrieval = Retrieval()
    words = retrieval.sample(300, generator)
    key, field, _ = words.latent["words"].unbind(2)
    assert ((key == words.tokens[:, -2:-1]).sum(1) == 3).all()
    assert ((field == words.tokens[:, -1:]).sum(1) == 3).all()
    texts = Ngram().sample(3000, generator).tokens
    for back in (1, 2):
        elsewhere = (texts[:, 2 - back : -1 - back] == texts[:, -back, None]).sum(1) > 1
        assert 0.3 < elsewhere.double().mean() < 0.9


def test_the_repeated_name_is_as_often_the_first_as_the_second(generator):
    batch = Ioi().sample(20_000, generator)
    repeated = batch.latent["repeated"]
    assert float(repeated.double().mean()) == pytest.approx(0.5, abs=0.02)
    first = (batch.tokens == batch.tokens[:, -2:-1]).int().argmax(1)
    other = (batch.tokens == batch.targets).int().argmax(1)
    assert torch.equal((first > other).long(), repeated)


@pytest.mark.parametrize("name", task_names())
def test_the_same_seed_gives_the_same_contexts(name):
    task = make_task(name)
    first, again, other = (task.sample(64, torch.Generator().manual_seed(seed)).tokens for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("task", "knobs", "line"),
    [
        (Inversion, {"f_r": 1.5}, "inversion needs 0 <= f_r <= 1: f_r=1.5"),
        (Inversion, {"pairs": 12}, "inversion needs 1 <= pairs and 2*pairs <= length-1: pairs=12, length=24"),
        (Inversion, {"association": "loop"}, "inversion's association is 'neighbours' or 'seed:N': association='loop'"),
        (Inversion, {"vocab": 10}, "inversion needs 2*pairs <= vocab-1 distinct words: pairs=8"),
        (Retrieval, {"keys": 0}, "retrieval needs keys >= 1: keys=0"),
        (Retrieval, {"fields": -1}, "retrieval needs fields >= 1: fields=-1"),
        (Retrieval, {"vocab": 15}, "keys + fields + keys*fields <= vocab-1 distinct words: keys=3, fields=3, vocab=15"),
        (Retrieval, {"length": 28}, "3*keys*fields <= length-2: keys=3, fields=3, length=28"),
        (Ngram, {"n": 1}, "ngram needs n >= 2: n=1"),
        (Ngram, {"vocab": 2}, "ngram needs vocab >= 3: vocab=2"),
        (Ngram, {"length": 4}, "ngram needs 2*n-1 <= length: n=3, length=4"),
        (
            Ngram,
            {"n": 2, "vocab": 16},
            "length-n+1 <= vocab*(vocab-1)^(n-2) distinct runs of n-1 tokens: length=24, n=2, vocab=16",
        ),
        (Ioi, {"gap": -1}, "ioi needs gap >= 0: gap=-1"),
        (Ioi, {"distractors": -1}, "ioi needs distractors >= 0: distractors=-1"),
        (Ioi, {"names": 1}, "ioi needs 2 <= names <= vocab-1: names=1, vocab=64"),
        (Ioi, {"names": 64}, "ioi needs 2 <= names <= vocab-1: names=64, vocab=64"),
        (Ioi, {"names": 60}, "distractors <= vocab-1-names other words: distractors=8, names=60, vocab=64"),
        (Ioi, {"length": 11}, "distractors + gap + 3 <= length: distractors=8, gap=1, length=11"),
        (Copy, {"segment": 1}, "2 <= segment <= vocab-1 distinct words: segment=1, vocab=64"),
        (Copy, {"vocab": 8}, "2 <= segment <= vocab-1 distinct words: segment=8, vocab=8"),
        (Copy, {"segment": 13}, "copy needs 2*segment-1 <= length: segment=13, length=24"),
        (Copy, {"gap": -2}, "copy needs gap >= 0: gap=-2"),
        (Copy, {"gap": 10}, "copy needs 2*segment-1 + gap <= length: segment=8, gap=10, length=24"),
        (Repeated, {"shortest": 1}, "repeated needs 2 <= shortest <= longest: shortest=1, longest=10"),
        (Repeated, {"shortest": 11}, "repeated needs 2 <= shortest <= longest: shortest=11, longest=10"),
        (Repeated, {"vocab": 10}, "repeated needs longest <= vocab-1 distinct words: longest=10, vocab=10"),
        (Repeated, {"length": 11}, "repeated needs longest+2 <= length: longest=10, length=11"),
        (Hop, {"chains": 0}, "hop needs chains >= 1: chains=0"),
    ],
    ids=str,
)
def test_knobs_that_do_not_fit_are_refused_with_the_inequality(task, knobs, line):
    with pytest.raises(TaskError) as caught:
        task(**knobs)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "task",
    [
        Copy(segment=2, length=3),
        Copy(segment=2, gap=0, length=3),
        Repeated(shortest=2, longest=2, length=4),
        Ioi(vocab=3, names=2, distractors=0, gap=0, length=3),
        Ngram(vocab=3, n=2, length=3),
        Ngram(vocab=3, n=3, length=8),
        Retrieval(vocab=4, keys=1, fields=1, length=5),
        Inversion(vocab=3, pairs=1, length=3),
    ],
    ids=str,
)
def test_the_smallest_contexts_that_fit_can_be_drawn_and_solved(task, generator):
    batch = task.sample(200, generator)
    assert batch.tokens.shape == (200, task.n_positions)
    assert torch.equal(task.bayes(batch).argmax(2), batch.targets)

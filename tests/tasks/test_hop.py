import pytest
import torch

from imir_lens.errors import TaskError
from imir_lens.ids import CoordinateId
from imir_lens.relations import orbits_on_pairs
from imir_lens.tasks import Hop
from imir_lens.tasks.base import Batch

SETTINGS = [
    Hop(),
    Hop(hops=1, chains=8, distractors=0),
    Hop(hops=3, chains=2, distractors=4, length=21),  # 20 cells for 20 tokens: no filler at all
    Hop(vocab=9, hops=2, chains=1, distractors=1, length=7),
]


@pytest.mark.parametrize("task", SETTINGS, ids=str)
def test_following_the_blocks_from_the_query_ends_at_the_answer(task, generator):
    batch = task.sample(500, generator)
    for tokens, target in zip(batch.tokens.tolist(), batch.targets[:, 0].tolist(), strict=True):
        after = {}
        cells, place = tokens[:-1], 0
        while place < len(cells):
            if cells[place] == 0:
                place += 1
                continue
            assert cells[place] not in after  # no word opens two blocks: the answer is unique
            after[cells[place]] = cells[place + 1]
            place += 2
        assert len(after) == task.chains * task.hops + task.distractors
        word = tokens[-1]
        for _ in range(task.hops):
            word = after[word]
        assert word == target
        assert target not in after  # the chain ends there


@pytest.mark.parametrize("task", SETTINGS, ids=str)
def test_bayes_reads_the_answer_from_the_tokens_alone(task, generator):
    batch = task.sample(20_000, generator)
    blind = Batch(batch.tokens, batch.queries, torch.zeros_like(batch.targets), batch.mask)
    law = task.bayes(blind)
    assert law.shape == (20_000, 1, task.vocab)
    assert torch.equal(law.sum(2), torch.ones(20_000, 1))
    assert torch.equal(law.argmax(2), batch.targets)


def test_exchanging_the_ends_of_two_chains_exchanges_the_answers(generator):
    task = Hop()
    batch = task.sample(1000, generator)
    ends = batch.latent["chain_words"][..., -1]
    tokens = batch.tokens.clone()
    for end, other in ((0, 1), (1, 0)):
        tokens = torch.where(batch.tokens == ends[:, end, None], ends[:, other, None], tokens)
    answers = task.bayes(Batch(tokens, batch.queries, batch.targets, batch.mask)).argmax(2)
    assert torch.equal(answers, ends.gather(1, 1 - batch.latent["queried"][:, None]))


@pytest.mark.parametrize("task", SETTINGS, ids=str)
def test_words_are_distinct_apart_from_the_chaining(task, generator):
    batch = task.sample(2000, generator)
    counts = torch.zeros(2000, task.vocab, dtype=torch.long)
    counts.scatter_add_(1, batch.tokens[:, :-1], torch.ones_like(batch.tokens[:, :-1]))
    inner = batch.latent["chain_words"][..., 1:-1].flatten(1)
    expected = torch.zeros_like(counts)
    expected.scatter_(1, batch.latent["words"].flatten(1), 1).scatter_(1, inner, 2)
    assert torch.equal(counts[:, 1:], expected[:, 1:])
    words = (expected[:, 1:] > 0).sum(1)
    assert set(words.tolist()) == {task.chains * (task.hops + 1) + 2 * task.distractors}


def test_queries_words_and_block_orders_are_uniform(generator):
    task = Hop(vocab=9, hops=2, chains=2, distractors=1, length=12)
    n = 60_000
    batch = task.sample(n, generator)
    queries, targets, chains = batch.tokens[:, -1], batch.targets[:, 0], batch.latent["queried"]
    for values, cells in ((queries - 1, 8), (targets - 1, 8), (chains, 2)):
        counts = torch.bincount(values, minlength=cells)
        assert ((counts / n - 1 / cells).abs() < 5 / (n * cells) ** 0.5).all()
    orders = batch.latent["block_chain"].unique(dim=0, return_counts=True)[1]
    assert len(orders) == 30  # 5! / (2! 2!)
    assert ((orders / n - 1 / 30).abs() < 5 / (30 * n) ** 0.5).all()


def test_chance_is_uniform_over_words():
    law = Hop(vocab=21).chance()
    assert law[0] == 0
    assert torch.allclose(law[1:], torch.full((20,), 0.05))


def test_relations_are_the_orbits_of_the_symmetry_generators():
    task = Hop(vocab=9, hops=2, chains=1, distractors=1, length=7)
    orbits = orbits_on_pairs(task.symmetry_generators)
    relations = task.relations
    kind = relations.class_of()
    label = 2 * (2 * kind.unsqueeze(1) + kind) + relations.matrix("same")
    pairs = torch.stack([orbits.flatten(), label.flatten()], 1).unique(dim=0)
    assert len(pairs) == len(orbits.unique()) == len(label.unique()) == 5


def test_reference_circuit_has_one_matching_head_for_each_hop():
    assert Hop(hops=1).reference_circuit == (
        "L0H0/score/q:res/k:res/offset+1",
        "L1H0/score/q:res/k:L0H0/same",
        "readout/via:L1H0/same",
        "L1H0/score/q:res/k:res/same",
    )
    three = Hop(hops=3, chains=1).reference_circuit
    assert three == (
        "L0H0/score/q:res/k:res/offset+1",
        "L1H0/score/q:res/k:L0H0/same",
        "L2H0/score/q:L1H0/k:L0H0/same",
        "L3H0/score/q:L2H0/k:L0H0/same",
        "readout/via:L3H0/same",
        "L1H0/score/q:res/k:res/same",
        "L2H0/score/q:L1H0/k:res/same",
        "L2H0/score/q:L1H0/k:res/offset-1",
        "L3H0/score/q:L2H0/k:res/same",
        "L3H0/score/q:L2H0/k:res/offset-1",
    )
    assert [str(CoordinateId.parse(text)) for text in three] == list(three)


@pytest.mark.parametrize(
    ("knobs", "line"),
    [
        ({"hops": 0}, "hops >= 1: hops=0"),
        ({"chains": 0}, "chains >= 1: chains=0"),
        ({"distractors": -1}, "distractors >= 0: distractors=-1"),
        ({"vocab": 10}, "chains*(hops+1) + 2*distractors <= vocab-1 distinct words: hops=2, chains=2, distractors=2"),
        ({"length": 12}, "2*(chains*hops + distractors) <= length-1: hops=2, chains=2, distractors=2, length=12"),
    ],
    ids=str,
)
def test_knobs_that_do_not_fit_are_refused_with_the_inequality(knobs, line):
    with pytest.raises(TaskError) as caught:
        Hop(**knobs)
    assert line in str(caught.value)


def test_the_same_seed_gives_the_same_contexts():
    first, again, other = (Hop().sample(64, torch.Generator().manual_seed(seed)).tokens for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)

from pathlib import Path

import numpy as np
import pytest
import torch
from enumeration import recall_law
from partitions import declared_partition, same_partition

from imir_lens.errors import TaskError
from imir_lens.ids import CoordinateId
from imir_lens.relations import orbits_on_pairs
from imir_lens.tasks import Recall
from imir_lens.tasks.base import Batch
from imir_lens.tasks.layout import block_firsts
from imir_lens.tasks.symmetry import exchange

SMALL = [
    Recall(vocab=7, pairs=2, length=6, burstiness=0.5),
    Recall(vocab=7, pairs=2, length=6, burstiness=1.5),
    Recall(vocab=7, pairs=2, length=6, burstiness=0.5, f_r=0.0),
    Recall(vocab=13, pairs=1, length=4, burstiness=0.5, f_r=0.5, f_v=0.5, rare=4),
    Recall(vocab=13, pairs=1, length=4, burstiness=0.0, f_r=0.3, f_v=0.5, rare=4),
    Recall(vocab=9, pairs=1, length=4, burstiness=0.5, f_r=0.0, f_v=1.0),
]
SETTINGS = [
    Recall(vocab=10, pairs=2, length=8),
    Recall(vocab=11, pairs=2, length=8, f_r=0.0),
    Recall(vocab=12, pairs=2, length=8, f_r=0.0, f_v=0.5),
    Recall(vocab=16, pairs=2, length=8, f_r=0.5, association="seed:3"),
    Recall(vocab=20, pairs=2, length=8, f_r=0.5, f_v=0.5, rare=5, association="seed:4"),
    Recall(vocab=9, pairs=1, length=4, f_r=1.0, rare=7),
    Recall(vocab=9, pairs=1, length=4, f_r=0.0, rare=6),
]


def as_batch(task: Recall, contexts: list[tuple[int, ...]]) -> Batch:
    tokens = torch.tensor(contexts)
    unknown = torch.zeros(len(tokens), 1, dtype=torch.long)  # bayes must not look at the answers
    return Batch(tokens, unknown + task.length - 1, unknown, unknown == 0)


def conditional(task: Recall, law) -> torch.Tensor:
    table = torch.zeros(len(law), task.vocab, dtype=torch.double)
    for row, answers in enumerate(law.values()):
        for answer, probability in answers.items():
            table[row, answer] = probability
    return table / table.sum(1, keepdim=True)


@pytest.mark.parametrize(
    "task", [*SMALL, Recall(vocab=17, pairs=2, length=5, burstiness=1.0, f_r=0.5, f_v=0.5, rare=8)], ids=str
)
def test_bayes_equals_the_enumerated_posterior(task):
    law = recall_law(task)
    assert sum(sum(answers.values()) for answers in law.values()) == pytest.approx(1)
    assert len(law) > 30
    expected = conditional(task, law)
    assert torch.allclose(task.bayes(as_batch(task, list(law)))[:, 0].double(), expected, atol=1e-6)


@pytest.mark.parametrize("task", SMALL, ids=str)
def test_samples_follow_the_enumerated_law(task, generator):
    law = {(*tokens, a): p for tokens, answers in recall_law(task).items() for a, p in answers.items() if p > 0}
    n = 200_000
    batch = task.sample(n, generator)
    seen, counts = torch.cat([batch.tokens, batch.targets], 1).unique(dim=0, return_counts=True)
    expected = n * torch.tensor([law[tuple(row)] for row in seen.tolist()])  # a KeyError is an impossible context
    assert expected.min() > 5  # chi-square needs filled cells
    assert len(seen) == len(law)
    chi_square = ((counts - expected) ** 2 / expected).sum()
    spread = (2 * (len(law) - 1)) ** 0.5
    assert abs(float(chi_square) - (len(law) - 1)) < 5 * spread


@pytest.mark.parametrize("task", SMALL, ids=str)
def test_chance_is_the_enumerated_marginal(task):
    marginal = torch.zeros(task.vocab)
    for answers in recall_law(task).values():
        for answer, probability in answers.items():
            marginal[answer] += probability
    assert torch.allclose(task.chance(), marginal, atol=1e-6)


@pytest.mark.parametrize("task", SMALL[:4], ids=str)
def test_every_symmetry_generator_leaves_the_enumerated_law_alone(task):
    law = recall_law(task)
    assert task.symmetry_generators
    for g in task.symmetry_generators:
        assert relabelling_error(law, g) < 1e-12


def test_a_relabelling_that_breaks_couples_changes_the_law():
    law = recall_law(SMALL[2])
    assert relabelling_error(law, exchange(7, [1], [2])) < 1e-12
    assert relabelling_error(law, exchange(7, [1], [3])) > 1e-3


def relabelling_error(law, g):
    g = g.tolist()
    return max(
        abs(law.get(tuple(g[t] for t in tokens), {}).get(g[answer], 0.0) - probability)
        for tokens, answers in law.items()
        for answer, probability in answers.items()
    )


@pytest.mark.parametrize("task", SETTINGS, ids=str)
def test_relations_are_the_orbits_of_the_symmetry_generators(task):
    orbits = orbits_on_pairs(task.symmetry_generators)
    assert same_partition(orbits, declared_partition(task))
    assert not same_partition(orbits_on_pairs([torch.arange(task.vocab)]), declared_partition(task))


@pytest.mark.parametrize("association", ["neighbours", "seed:5"])
def test_blocks_are_spread_evenly_over_each_orbit_and_not_over_those_of_another_association(association, generator):
    knobs = {"vocab": 34, "pairs": 3, "length": 12, "f_r": 0.5, "f_v": 0.25, "rare": 9}
    task = Recall(**knobs, association=association)
    words = task.sample(200_000, generator).latent["words"]
    counts = torch.bincount((words[..., 0] * 34 + words[..., 1]).flatten(), minlength=34 * 34).double()
    assert heterogeneity(counts, declared_partition(task).flatten()) < 1.2
    other = Recall(**knobs, association="seed:6")
    assert heterogeneity(counts, declared_partition(other).flatten()) > 10


def heterogeneity(counts, label):
    """Chi-square per degree of freedom of equal counts within each orbit."""
    label = label.unique(return_inverse=True)[1]
    size = torch.bincount(label).double()
    mean = torch.zeros_like(size).index_add(0, label, counts) / size
    expected = mean[label]
    cells = expected > 0
    degrees = cells.sum() - (mean > 0).sum()
    return float((((counts - expected) ** 2)[cells] / expected[cells]).sum() / degrees)


@pytest.mark.parametrize(
    "task", [Recall(), *SETTINGS, Recall(burstiness=2.5), Recall(pairs=7, burstiness=0.5)], ids=str
)
def test_contexts_are_read_back_from_their_tokens(task, generator):
    batch = task.sample(2000, generator)
    starts, words = batch.latent["starts"], batch.latent["words"]
    firsts = block_firsts(batch.tokens)
    assert torch.equal(firsts.nonzero()[:, 1].reshape(2000, task.pairs), starts)
    assert torch.equal(batch.tokens.gather(1, starts), words[..., 0])
    assert torch.equal(batch.tokens.gather(1, starts + 1), words[..., 1])
    assert (batch.tokens[:, :-1] != 0).sum() == 2000 * 2 * task.pairs
    copies = (words[..., 0] == batch.tokens[:, -1:]).sum(1)
    assert torch.equal(copies, batch.latent["copies"])
    queried = batch.latent["queried"]
    assert torch.equal(queried >= 0, copies > 0)
    shown = queried >= 0
    assert torch.equal(words[shown, queried[shown], 1], batch.targets[shown, 0])
    # all words are distinct but for the copies of the queried pair; what is asked is distinct too
    asked = torch.cat([words.flatten(1), batch.tokens[:, -1:], batch.targets], 1).sort(1).values
    distinct = 1 + (asked.diff(dim=1) != 0).sum(1)
    assert torch.equal(distinct, 2 * (1 + task.pairs - copies))


def test_burstiness_sets_how_often_the_queried_pair_is_shown(generator):
    for burstiness, expected in ((0.0, {0}), (0.25, {0, 1}), (1.0, {1}), (2.5, {2, 3})):
        copies = Recall(pairs=4, length=12, burstiness=burstiness).sample(20_000, generator).latent["copies"]
        assert set(copies.tolist()) == expected
        assert float(copies.double().mean()) == pytest.approx(burstiness, abs=0.02)


def test_f_r_and_f_v_set_the_shares_of_rare_and_varied_pairs(generator):
    task = Recall(pairs=5, length=16, f_r=0.3, f_v=0.4)
    latent = task.sample(20_000, generator).latent
    first, second = latent["words"].unbind(2)
    partner = task.partner[first]
    assert float(latent["rare"].double().mean()) == pytest.approx(0.3, abs=0.01)
    assert torch.equal(latent["rare"], first >= task.vocab - task.n_rare)
    common = ~latent["rare"]
    assert torch.equal(latent["varied"][common], (second != partner)[common])
    assert float(latent["varied"][common].double().mean()) == pytest.approx(0.4, abs=0.01)


def test_default_layout_is_that_of_contexts_made_elsewhere():
    """The file was written by code that knows nothing of this package."""
    stored = np.load(Path(__file__).parents[1] / "data" / "recall_contexts.npz")
    tokens, targets = torch.from_numpy(stored["tokens"]), torch.from_numpy(stored["targets"])
    task = Recall()
    batch = Batch(tokens, torch.full((512, 1), 23), targets[:, None], torch.ones(512, 1, dtype=torch.bool))
    assert tokens.shape[1] == task.n_positions
    assert int(block_firsts(tokens).sum()) == 512 * task.pairs
    assert torch.equal(task.bayes(batch).argmax(2), targets[:, None])


def test_the_same_seed_gives_the_same_contexts():
    task = Recall(f_r=0.5, f_v=0.5, burstiness=0.5, pairs=7)
    first, again, other = (task.sample(64, torch.Generator().manual_seed(seed)).tokens for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_association_is_an_involution_without_fixed_points_on_the_common_words():
    for association in ("neighbours", "seed:1", f"seed:{2**62}"):
        task = Recall(vocab=64, f_r=0.0, association=association)
        partner = task.partner
        common = (partner >= 0).nonzero().squeeze(1)
        assert common.tolist() == list(range(1, 63))  # the odd word out has no associate
        assert torch.equal(partner[partner[common]], common)
        assert not (partner[common] == common).any()
    assert Recall(f_r=0.0).partner[:5].tolist() == [-1, 2, 1, 4, 3]
    assert not torch.equal(Recall(f_r=0.0).partner, Recall(f_r=0.0, association="seed:1").partner)


@pytest.mark.parametrize(
    ("knobs", "circuit"),
    [
        ({}, "context"),
        ({"f_r": 0.0, "vocab": 65}, "weights"),
        ({"f_r": 0.5}, "context"),
        ({"f_r": 0.5, "burstiness": 0.5}, "both"),
        ({"f_r": 0.0, "f_v": 0.5, "burstiness": 0.5, "pairs": 7}, "both"),
        ({"f_r": 0.5, "burstiness": 0.0}, "weights"),
    ],
    ids=str,
)
def test_reference_circuit_is_the_least_one_that_solves_the_task(knobs, circuit):
    context = ("L0H0/score/q:res/k:res/offset+1", "L1H0/score/q:res/k:L0H0/same", "readout/via:L1H0/same")
    context += ("L1H0/score/q:res/k:res/same",)
    weights = ("readout/via:res/assoc",)
    expected = {"context": context, "weights": weights, "both": context + weights}[circuit]
    assert Recall(**knobs).reference_circuit == expected
    assert [str(CoordinateId.parse(text)) for text in expected] == list(expected)


@pytest.mark.parametrize(
    ("knobs", "line"),
    [
        ({"vocab": 64, "pairs": 40, "length": 100}, "2*pairs <= vocab-1 distinct words: pairs=40, "),
        ({"pairs": 12}, "2*pairs <= length-1: pairs=12, length=24"),
        ({"pairs": 0}, "1 <= pairs"),
        ({"f_r": 1.5}, "0 <= f_r <= 1: f_r=1.5"),
        ({"f_v": float("nan")}, "0 <= f_v <= 1: f_v=nan"),
        ({"burstiness": 9.0}, "0 <= burstiness <= pairs: burstiness=9.0, pairs=8"),
        ({"association": "random"}, "'neighbours' or 'seed:N': association='random'"),
        ({"association": f"seed:{2**62 + 1}"}, "seed:N needs 0 <= N <= 2^62: association='seed:4611686018427387905'"),
        ({"association": "seed:" + "9" * 5000}, "seed:N needs 0 <= N <= 2^62: association='seed:999"),
        ({"rare": 64}, "rare <= vocab-1: rare=64, vocab=64"),
        ({"rare": 10}, "2*pairs <= 10 rare words"),
        ({"f_r": 0.5, "f_v": 0.5, "pairs": 9}, "4*pairs <= 32 associated common words: pairs=9"),
        ({"vocab": 17, "burstiness": 0.5}, "2*(pairs+1) <= vocab-1 distinct words: pairs=8, burstiness=0.5"),
    ],
    ids=str,
)
def test_knobs_that_do_not_fit_are_refused_with_the_inequality(knobs, line):
    with pytest.raises(TaskError) as caught:
        Recall(**knobs)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_describe_shows_one_context_with_its_answer(generator):
    task = Recall(vocab=9, pairs=2, length=7)
    batch = task.sample(3, generator)
    line = task.describe(batch, 1)
    assert line.endswith(f"[{batch.tokens[1, -1]}@6 → {batch.targets[1, 0]}]")
    assert "·" in line
    assert "\n" not in line

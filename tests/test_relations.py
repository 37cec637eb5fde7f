import pytest
import torch

from imir_lens.errors import TaskError
from imir_lens.relations import TokenRelations, orbits_on_pairs


def brute_orbits(generators):
    """Orbits by walking the pairs one by one."""
    n = len(generators[0])
    label = {}
    for start in ((s, t) for s in range(n) for t in range(n)):
        if start in label:
            continue
        number, todo = len(set(label.values())), [start]
        while todo:
            pair = todo.pop()
            if pair not in label:
                label[pair] = number
                todo += [(int(g[pair[0]]), int(g[pair[1]])) for g in generators]
    return torch.tensor([[label[s, t] for t in range(n)] for s in range(n)])


@pytest.mark.parametrize(
    "generators",
    [
        [[0, 2, 1, 3, 4], [0, 1, 3, 2, 4], [0, 1, 2, 4, 3]],
        [[0, 2, 3, 4, 1]],
        [[0, 2, 1, 3, 4], [0, 3, 4, 1, 2]],
        [[1, 2, 3, 4, 0]],
        [[0, 1, 2, 3, 4]],
        [[4, 3, 2, 1, 0], [1, 0, 2, 3, 4]],
    ],
    ids=str,
)
def test_orbits_agree_with_a_walk_over_the_pairs(generators):
    generators = [torch.tensor(g) for g in generators]
    assert torch.equal(orbits_on_pairs(generators), brute_orbits(generators))


def test_orbits_of_random_permutations_of_many_tokens(generator):
    generators = [torch.randperm(30, generator=generator) for _ in range(2)]
    generators = [torch.cat([g, torch.arange(30, 34)]) for g in generators]
    orbits = orbits_on_pairs(generators)
    assert torch.equal(orbits, brute_orbits(generators))
    for g in generators:
        assert torch.equal(orbits[g][:, g], orbits)


def test_a_long_cycle_has_one_orbit_for_each_shift():
    n = 200
    orbits = orbits_on_pairs([torch.arange(1, n + 1) % n])
    assert len(orbits.unique()) == n
    assert torch.equal(orbits.diag(), torch.zeros(n, dtype=torch.long))


def test_orbits_refuse_what_is_not_a_permutation():
    with pytest.raises(TaskError, match=r"not a permutation of 0\.\.2"):
        orbits_on_pairs([torch.tensor([0, 1, 1])])
    with pytest.raises(TaskError, match=r"not a permutation of 0\.\.2"):
        orbits_on_pairs([torch.tensor([0, 1, 2]), torch.tensor([1, 0])])
    with pytest.raises(TaskError, match="at least one generator"):
        orbits_on_pairs([])


def relations(**changes):
    parts = {
        "classes": {"filler": torch.tensor([0]), "word": torch.tensor([1, 3, 4]), "rare": torch.tensor([2])},
        "matchings": {"same": torch.tensor([-1, 1, 2, 3, 4]), "assoc": torch.tensor([-1, 3, -1, 1, -1])},
        "reference": "filler",
    }
    return TokenRelations(**{**parts, **changes})


def test_relations_name_matchings_then_contrasts_against_the_reference():
    r = relations()
    assert r.d_vocab == 5
    assert r.free_classes == ("word", "rare")
    assert r.names == (
        "same",
        "assoc",
        "filler>word",
        "filler>rare",
        "word>word",
        "word>rare",
        "rare>word",
        "rare>rare",
    )
    assert r.class_of().tolist() == [0, 1, 2, 1, 1]


def test_matrices_hold_the_pairs_of_a_relation():
    r = relations()
    assert r.matrix("same").nonzero().tolist() == [[1, 1], [2, 2], [3, 3], [4, 4]]
    assert r.matrix("assoc").nonzero().tolist() == [[1, 3], [3, 1]]
    assert r.matrix("rare>word").nonzero().tolist() == [[2, 1], [2, 3], [2, 4]]
    rectangles = sum(r.matrix(f"{q}>{k}").long() for q in r.classes for k in r.classes)
    assert torch.equal(rectangles, torch.ones(5, 5, dtype=torch.long))
    for name in ("other", "word>other", "word"):
        with pytest.raises(TaskError, match=f"unknown relation '{name}'"):
            r.matrix(name)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"classes": {"filler": torch.tensor([0]), "word": torch.tensor([1, 3, 4])}}, "do not partition"),
        ({"classes": {"filler": torch.tensor([0, 1]), "word": torch.tensor([1, 2, 3, 4])}}, "do not partition"),
        ({"reference": "fill"}, "reference class 'fill'"),
        ({"matchings": {"same": torch.tensor([-1, 1, 1, 3, 4])}}, "'same' is not an injective map on 5 tokens"),
        ({"matchings": {"same": torch.tensor([-1, 1, 2])}}, "'same' is not an injective map on 5 tokens"),
    ],
)
def test_relations_refuse_what_does_not_fit(changes, line):
    with pytest.raises(TaskError, match=line):
        relations(**changes)

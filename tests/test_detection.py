"""Detection on surrogates of small spaces: what it finds is what an exhaustive search finds."""

from itertools import combinations

import pytest
import torch
from brute_force import causal_softmax, content

from imir_lens.coordinates import Coordinates, CoordinateSpace
from imir_lens.detection import bootstrap_jaccard, detect, path_stay
from imir_lens.errors import OptionError
from imir_lens.evaluation import score_logits
from imir_lens.ids import Head, Path
from imir_lens.models.constructions import induction_circuit
from imir_lens.paths import PathTable
from imir_lens.surrogate import Surrogate
from imir_lens.tasks import make_task

TASK = make_task("recall", vocab=16, pairs=3, length=9)
# Strong enough to solve the task, and no part of it idle.
CIRCUIT = induction_circuit(alpha=5.0, beta=20.0, gamma=12.0, not_itself=-7.0)


def coordinates(values: dict[str, float], *, noise: float = 0.0) -> Coordinates:
    space = CoordinateSpace(PathTable.full(2, 1), TASK.relations, TASK.n_positions, TASK.query_positions)
    flat = noise * torch.randn(space.size, generator=torch.Generator().manual_seed(0))
    for name, value in values.items():
        flat[space.place(name)] = value
    return Coordinates(space, flat)


def batch(contexts: int = 128, seed: int = 0):
    return TASK.sample(contexts, torch.Generator().manual_seed(seed))


def loss(given: Coordinates, kept: torch.Tensor) -> float:
    values = torch.where(kept, given.values, 0.0)
    return score_logits(Surrogate(given.space).logits(values, batch()), batch()).loss


def ids(found) -> set[str]:
    return {str(unit.id) for unit in found.units}


def test_the_circuit_is_found_among_noise():
    given = coordinates(CIRCUIT, noise=0.05)
    found = detect(given, batch())
    assert ids(found) == set(CIRCUIT) and found.minimal and found.backups == ()
    assert {unit.role for unit in found.units} == {"alpha", "beta", "gamma", "auxiliary"}
    assert all(unit.value == CIRCUIT[str(unit.id)] == pytest.approx(given[unit.id]) for unit in found.units)
    assert [unit.place for unit in found.units] == found.mask.nonzero().squeeze(1)[
        found.attribution[found.mask].abs().argsort(descending=True)
    ].tolist()


def test_the_circuit_is_the_smallest_set_within_the_budget():
    """Against every subset of the twelve largest coordinates."""
    given = coordinates(CIRCUIT, noise=0.2)
    found = detect(given, batch(), budget=0.02)
    assert found.surrogate.loss <= found.limit
    assert found.limit <= found.projection.loss + 0.02 * (found.nothing.loss - found.projection.loss) + 1e-9
    assert found.surrogate.loss == pytest.approx(loss(given, found.mask))
    places = [given.space.place(name) for name, _ in given.largest(12)]
    assert found.mask[places].sum() == len(found.units)
    for count in range(len(found.units)):
        for chosen in combinations(places, count):
            kept = torch.zeros(given.space.size, dtype=torch.bool)
            kept[list(chosen)] = True
            assert loss(given, kept) > found.limit
    for unit in found.units:
        kept = found.mask
        kept[unit.place] = False
        assert loss(given, kept) > found.limit  # 1-minimal


def test_what_cannot_do_the_task_is_not_searched():
    found = detect(coordinates({}, noise=0.5), batch())
    assert found.units == () and found.evaluations <= 3 and found.gradient_passes == 0
    assert str(found) == "Circuit: nothing detected" and found.by_role() == {}
    nothing = detect(coordinates({}), batch())
    assert nothing.units == () and nothing.projection == nothing.nothing


def test_induction_one_place_off_is_nothing():
    """The head that copies looks two back instead of one."""
    wrong = {name.replace("offset+1", "offset+2"): value for name, value in CIRCUIT.items()}
    assert detect(coordinates(wrong, noise=0.05), batch()).units == ()


def test_small_coordinates_count_and_rounding_does_not():
    uneven = induction_circuit(alpha=5.0, beta=60.0, gamma=12.0, not_itself=-20.0)  # alpha is a twelfth of beta
    found = detect(coordinates(uneven, noise=1e-6), batch())
    assert ids(found) == set(uneven)
    assert {str(found.coordinates.space.id(int(place))) for place in found.attribution.nonzero()} == set(uneven)


def test_candidates_confine_the_search():
    given = coordinates(CIRCUIT, noise=0.05)
    candidates = torch.ones(given.space.size, dtype=torch.bool)
    candidates[given.space.place("readout/via:L1H0/same")] = False
    assert detect(given, batch(), candidates=candidates).units == ()
    only = torch.zeros(given.space.size, dtype=torch.bool)
    only[given.places(list(CIRCUIT))] = True
    found = detect(given, batch(), candidates=only)
    assert ids(found) == set(CIRCUIT) and float(found.attribution[~only].abs().max()) == 0


@pytest.mark.parametrize("budget", [0.0, 1.0, -0.1, 2.0])
def test_a_budget_out_of_range_is_refused(budget):
    with pytest.raises(OptionError, match=f"between 0 and 1, got {budget}"):
        detect(coordinates(CIRCUIT), batch(), budget=budget)


def test_a_larger_budget_never_takes_more():
    given = coordinates(CIRCUIT, noise=0.1)
    sizes = [len(detect(given, batch(), budget=budget).units) for budget in (0.001, 0.01, 0.1, 0.4)]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > sizes[-1] >= 3


def test_the_share_that_stays_is_the_diagonal_of_the_content_at_the_queries():
    heads = {(0, 0): 2, (1, 0): 1}
    raw = {head: causal_softmax(torch.randn(6, 9, 9, dtype=torch.float64)) for head in heads}
    stay = path_stay({Head(*head): pattern for head, pattern in raw.items()}, batch(6))
    for text, chain in (("res", ()), ("L0H0", ((0, 0),)), ("L0H0.L1H0", ((0, 0), (1, 0)))):
        moved = content(raw, chain, 9).expand(6, -1, -1)
        assert stay(Path.parse(text)) == pytest.approx(float(moved[:, 8, 8].mean()))
    assert 0 < stay(Path.parse("L0H0.L1H0")) < stay(Path.parse("L0H0")) < 0.9


def test_a_sharp_circuit_is_stable_under_resampling():
    found = detect(coordinates(CIRCUIT, noise=0.05), batch())
    generator = torch.Generator().manual_seed(0)
    assert bootstrap_jaccard(found, batch(), n=4, generator=generator) == 1
    empty = detect(coordinates({}), batch())
    assert bootstrap_jaccard(empty, batch(), n=4, generator=generator) == 0


def test_units_that_few_contexts_decide_are_not_stable():
    """With four contexts a sample may miss those that need a weak unit, or do with another."""
    given = coordinates(CIRCUIT | {"L1H0/score/q:res/k:res/same": -3.0}, noise=1.5)
    few = batch(4, seed=2)
    found = detect(given, few, budget=0.003)
    generator = torch.Generator().manual_seed(0)
    stability = bootstrap_jaccard(found, few, n=6, generator=generator, top=given.space.size)
    assert found.units and 0 < stability < 1
    # All coordinates are candidates: the same as detecting anew on each sample.
    generator, total = torch.Generator().manual_seed(0), 0.0
    for _ in range(6):
        again = ids(detect(given, few[torch.randint(4, (4,), generator=generator)], budget=0.003))
        total += len(again & ids(found)) / len(again | ids(found))
    assert stability == pytest.approx(total / 6)
    generator = torch.Generator().manual_seed(0)
    assert stability < bootstrap_jaccard(found, few, n=6, generator=generator, top=0)  # the circuit's own units only

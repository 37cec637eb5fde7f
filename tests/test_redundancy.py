"""Separate circuits: planted ones are told apart and counted; what shares a unit, or works only in part, is one."""

import pytest
import torch

from imir_lens.analysis import run_analysis
from imir_lens.detection import Circuit, detect
from imir_lens.errors import OptionError
from imir_lens.lens_model import LensModel, open_model
from imir_lens.models.constructions import induction_circuit, memory_circuit, plant, shared_circuit
from imir_lens.models.transformer import ImirTransformer
from imir_lens.projector import ImirProjector
from imir_lens.redundancy import separate_circuits, verify_separate
from imir_lens.report.build import report_data
from imir_lens.tasks import make_task
from imir_lens.tasks.base import Batch, Task

RECALL = make_task("recall")
# All pairs are common and stand in the context: the answer can be remembered or looked up.
EITHER = make_task("recall", vocab=33, pairs=4, length=12, f_r=0.0, f_v=0.0)
# Four in five contexts can be answered by either, the rest by one of the two alone.
PARTLY = make_task("recall", vocab=21, pairs=3, length=7, f_r=0.25, burstiness=0.8)
MEMORY = memory_circuit(delta=30.0)


def head_pair(alpha: str, beta: str) -> dict[str, float]:
    return induction_circuit(heads={"alpha": alpha, "beta": beta})


FIRST, SECOND, THIRD = (head_pair(f"L0H{k}", f"L1H{k}") for k in range(3))


def opened(task: Task, circuit: dict[str, float], **options: object) -> LensModel:
    shape = {"n_layers": 2, "n_heads": 2} | options
    return open_model(plant(task, circuit, generator=torch.Generator().manual_seed(1), **shape))


def search_batch(task: Task) -> Batch:
    return task.sample(256, torch.Generator().manual_seed(0))


def found_in(model: LensModel, task: Task) -> Circuit:
    return detect(ImirProjector.for_task(task).fit(model.weights).coordinates_, search_batch(task))


def units(circuits: tuple[Circuit, ...]) -> list[set[str]]:
    return sorted(({str(unit.id) for unit in circuit.units} for circuit in circuits), key=sorted)


@pytest.mark.parametrize(
    ("task", "parts", "options"),
    [
        (RECALL, [FIRST, SECOND], {}),
        (RECALL, [FIRST, SECOND], {"n_layers": 3, "other_heads": "random", "noise": 0.1}),
        (RECALL, [FIRST, SECOND, THIRD], {"n_heads": 3}),
        (RECALL, [FIRST, head_pair("L1H1", "L2H0")], {"n_layers": 3}),
        (EITHER, [induction_circuit(), MEMORY], {"n_heads": 1}),
        (EITHER, [FIRST, SECOND, MEMORY], {}),
    ],
    ids=["two", "two among random heads", "three", "in other layers", "and memory", "two and memory"],
)
def test_planted_circuits_without_a_common_unit_are_found_apart(task, parts, options):
    whole = {name: value for part in parts for name, value in part.items()}
    model = opened(task, whole, **options)
    circuit = found_in(model, task)
    apart = separate_circuits(circuit, search_batch(task))
    assert units(apart) == sorted((set(part) for part in parts), key=sorted)
    assert all(one.minimal and not one.backups and one.surrogate.accuracy > 0.99 for one in apart)
    tested = verify_separate(model, apart, task.sample(256, torch.Generator().manual_seed(1)))
    assert all(one.model.accuracy > 0.98 and one.surrogate.accuracy > 0.98 for one in tested)
    without = [set(whole) - names for names in units(apart)]
    assert not any(names <= rest for names, rest in zip(units(apart), without, strict=True))


@pytest.mark.parametrize(
    ("task", "circuit", "options"),
    [
        (RECALL, FIRST, {}),
        (RECALL, FIRST, {"other_heads": "random", "noise": 0.2}),
        (RECALL, FIRST | head_pair("L0H1", "L1H0"), {}),  # one gamma
        (RECALL, FIRST | head_pair("L0H0", "L1H1"), {}),  # one alpha
        (RECALL, shared_circuit("alpha"), {}),  # each head does half of the job
        (RECALL, shared_circuit("gamma"), {}),
        (RECALL, FIRST | {name: value / 4 for name, value in SECOND.items()}, {}),  # the second is too weak to do it
        (PARTLY, induction_circuit(gamma=20.0) | memory_circuit(delta=20.0), {}),
    ],
    ids=["alone", "among random heads", "gamma", "alpha", "half alpha", "half gamma", "weak", "in part"],
)
def test_what_shares_a_unit_or_works_in_part_is_one_circuit(task, circuit, options):
    found = found_in(opened(task, circuit, **options), task)
    assert found.units
    assert len(separate_circuits(found, search_batch(task))) == 1


def test_a_single_circuit_costs_nothing_more():
    found = found_in(opened(RECALL, FIRST), RECALL)
    assert separate_circuits(found, search_batch(RECALL)) == (found,)


def test_a_second_circuit_costs_less_than_the_search_for_the_first_and_its_backups():
    found = found_in(opened(RECALL, FIRST | SECOND), RECALL)
    last = separate_circuits(found, search_batch(RECALL))[-1]
    assert last.evaluations < found.evaluations / 2
    assert last.gradient_passes < found.gradient_passes


def test_a_random_model_has_none():
    config = plant(RECALL, FIRST, n_layers=2, n_heads=2).cfg
    model = open_model(ImirTransformer(config, generator=torch.Generator().manual_seed(0)))
    assert separate_circuits(found_in(model, RECALL), search_batch(RECALL)) == ()


def test_the_count_is_bounded(caplog):
    found = found_in(opened(RECALL, FIRST | SECOND), RECALL)
    with caplog.at_level("WARNING", logger="imir_lens.redundancy"):
        assert len(separate_circuits(found, search_batch(RECALL), most=1)) == 1
    assert "there may be more" in caplog.text
    with pytest.raises(OptionError, match="at least 1 circuit, got most=0"):
        separate_circuits(found, search_batch(RECALL), most=0)


def test_the_report_counts_them():
    analysis = run_analysis(opened(EITHER, FIRST | MEMORY), EITHER, contexts=128, bootstraps=0)
    report = report_data(analysis, command="test")
    assert [set(one["units"]) for one in report["circuit"]["separate"]] == [set(MEMORY), set(FIRST)]
    assert all(one["sufficient"] and one["accuracy"]["model"] > 0.98 for one in report["circuit"]["separate"])
    assert any("2 circuits without a common unit" in caveat for caveat in report["verdict"]["caveats"])
    single = report_data(run_analysis(opened(RECALL, FIRST), RECALL, contexts=64, bootstraps=0), command="test")
    assert single["circuit"]["separate"] == [] and single["verdict"]["caveats"] == []

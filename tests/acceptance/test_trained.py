"""Models trained from scratch end in the reference circuit of their task, in heads of their own choice."""

from pathlib import Path

import pytest

from benchmarks.trained.matching import FOUND, match_circuit
from benchmarks.trained.run import reference_values, share_of_loss
from imir_lens.analysis import Analysis, run_analysis
from imir_lens.ids import CoordinateId
from imir_lens.lens_model import open_model
from imir_lens.models.transformer import ImirTransformer
from imir_lens.roles import base_of
from imir_lens.training import TRAINED, train

# The quick ones; recall ends in the circuit of ngram, and `python -m benchmarks trained` has all.
TASKS = ("ngram", "ioi", "hop")


@pytest.fixture(scope="module", params=TASKS)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    recipe = TRAINED[request.param]
    place: Path = tmp_path_factory.mktemp(request.param)
    options = {**recipe.options, "evaluate_every": 1000}
    model = train(recipe.task, recipe.config, run=place / "run", seed=0, **options).model
    return run_analysis(open_model(model), recipe.task, bootstraps=0)


def _units(analysis: Analysis) -> dict[CoordinateId, float]:
    return {unit.id: unit.value for unit in analysis.circuit.units}


def test_training_comes_near_the_best_possible_and_is_named(trained: Analysis) -> None:
    assert trained.bayes.accuracy == 1
    assert trained.evidence.model.accuracy > 0.97
    assert trained.verdict.mechanism == "in_context"
    lost = trained.evidence.model.accuracy - trained.evidence.without_circuit.accuracy
    assert lost > 0.7


def test_training_finds_every_part_of_the_reference_circuit_that_has_a_name(trained: Analysis) -> None:
    reference = reference_values(trained.task)
    matching = match_circuit(reference, _units(trained))
    missing = [str(unit.reference) for unit in matching.units if unit.how != FOUND and reference[unit.reference] > 0]
    assert missing == []


def test_what_is_found_beyond_the_reference_is_a_second_head_for_a_job_or_matters_little(trained: Analysis) -> None:
    matching = match_circuit(reference_values(trained.task), _units(trained))
    roles = {unit.id: base_of(unit.role) for unit in trained.circuit.units}
    for unit in matching.extra:
        assert roles[unit] == "gamma" or share_of_loss(unit, trained) < 0.05


def test_an_untrained_model_has_none_of_it() -> None:
    recipe = TRAINED["ngram"]
    analysis = run_analysis(open_model(ImirTransformer(recipe.config)), recipe.task, contexts=128, bootstraps=0)
    assert analysis.evidence.model.accuracy < 0.2
    assert analysis.verdict.mechanism == "not_detected"
    assert match_circuit(reference_values(recipe.task), _units(analysis)).count(FOUND) == 0

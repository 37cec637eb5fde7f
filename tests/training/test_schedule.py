import pytest

from imir_lens.errors import OptionError
from imir_lens.tasks import Recall
from imir_lens.training.schedule import checkpoint_steps, stages, task_at, warm_up


def test_checkpoints_are_spaced_by_ratio_and_include_both_ends():
    assert checkpoint_steps(1) == [0, 1]
    assert checkpoint_steps(50) == [0, 1, 2, 5, 10, 20, 50]
    assert checkpoint_steps(1234) == [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 1234]


def test_the_learning_rate_rises_to_its_full_value_and_stays():
    assert [warm_up(step, 3) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert warm_up(0, 0) == 1.0


def test_curriculum_stages_come_first_and_the_task_last():
    task = Recall(pairs=8)
    staged = stages(task, [(10, {"pairs": 2}), (20, {"pairs": 4, "length": 12})])
    assert [task_at(step, task, staged).pairs for step in (0, 9, 10, 19, 20, 1000)] == [2, 2, 4, 4, 8, 8]
    assert task_at(10, task, staged).length == 12
    assert task_at(0, task, stages(task, ())) is task


@pytest.mark.parametrize(
    ("curriculum", "line"),
    [
        ([(20, {"pairs": 2}), (10, {"pairs": 4})], "ends at step 10: expected ends that increase"),
        ([(0, {"pairs": 2})], "ends at step 0"),
        ([(5, {"pears": 2})], "did you mean 'pairs'?"),
        ([(5, {"pairs": 20})], "2*pairs <= length-1: pairs=20"),
        ([(5, {"vocab": 32})], "expected 64 tokens"),
        ([(5, {"length": 30})], "at most 24"),
    ],
    ids=str,
)
def test_a_curriculum_that_does_not_fit_is_refused(curriculum, line):
    with pytest.raises(OptionError) as caught:
        stages(Recall(), curriculum)
    assert line in str(caught.value)

"""The benchmarks of surrogate training at a small size: they run, and what they claim holds in kind."""

from benchmarks import batched, coordinate_training, pruning


def test_the_surrogate_follows_full_training_with_the_metric_and_enough_coordinates():
    tables = coordinate_training.tables(coordinate_training.run(small=True))
    shift = {row["trained"]: row["largest, without delta"] for row in tables["emergence"]}
    assert shift["all coordinates"] <= 0.15
    assert shift["alpha, beta, gamma, delta"] > 2 * shift["all coordinates"]
    assert shift["control: as the second, one rate for all"] > 2 * shift["all coordinates"]
    assert {row["d_model"] for row in tables["cost"]} == {208}
    assert all(row["full / surrogate"] > 0 for row in tables["cost"])


def test_batched_trainings_end_where_a_loop_ends():
    for row in batched.run(small=True):
        assert row["largest difference, loop"] < 1e-5
        assert row.get("largest difference, loop of Surrogate", 0.0) < 1e-5
        assert row["loop / batched"] > 0


def test_a_pruned_planted_model_does_what_it_did():
    (row,) = pruning.run(small=True)
    assert row["accuracy, after"] == row["accuracy, before"] == 1
    assert row["numbers, after"] < 0.5 * row["numbers, before"]
    assert abs(row["rest"]) < 0.1 < abs(row["got"])

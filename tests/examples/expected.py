"""What each notebook has to say. Tolerances leave room for another machine's rounding, which training amplifies."""

from collections.abc import Callable

import pytest
from said import Said


def induction(said: Said) -> None:
    assert "in-context learning; evidence: stability" in said.text("analyze")
    for name in ("L0H0/score/q:res/k:res/offset+1", "L1H0/score/q:res/k:L0H0/same", "readout/via:L1H0/same"):
        assert name in said.text("ablate")
    alpha, beta, gamma, auxiliary, without, others = shares(said, "ablate")
    assert max(alpha, beta, gamma, without) < 0.2
    assert min(auxiliary, others) > 0.98
    assert "the model does not do recall" in said.text("control")


def memory(said: Said) -> None:
    verdicts = [line.split()[-3] for line in said.text("analyze").strip().splitlines()]
    assert verdicts == ["in_context", "in_weights", "mixed"]
    assert said.text("analyze").count("evidence: stability") == 3
    # Rows: intact, without the match, without memory; columns: only the context knows, only memory knows.
    assert said.numbers("dissociation") == pytest.approx([1, 1, 0, 1, 1, 0], abs=0.02)
    followed = said.numbers("conflict")
    assert followed[:4] == pytest.approx([1, 0, 0, 1], abs=0.02)
    assert followed[4:] == pytest.approx([0.748, 0.252], abs=0.1)


def averaging(said: Said) -> None:
    assert float(said.text("construct").split()[-1]) < 1e-9
    last = said.numbers("train")[-5:]
    assert last[0] == 768
    assert last[1] - last[2] == pytest.approx(0.003, abs=0.01)  # prediction, above BMA
    assert last[3] - last[4] == pytest.approx(0.007, abs=0.02)  # parents
    assert "The attention of L1H0 is the posterior over parents" in said.text("report")
    rows = said.text("verdicts").strip().splitlines()[1:]
    assert [row[:20].strip() for row in rows if "causal_bma" in row] == ["exact construction", "trained"]
    assert [row[:20].strip() for row in rows if "not_detected" in row] == [
        "untrained",
        "no graph to find",
        "another kernel",
        "likeliest parent",
    ]
    picks_one = [float(number) for number in rows[-1].split()[-2:]]
    assert picks_one[0] > 0.8 and picks_one[1] < 0.2  # predicts well, and its attention is no posterior


def training(said: Said) -> None:
    step, loss, accuracy = said.numbers("train")
    assert step == 400 and loss < 0.05 and accuracy > 0.99
    order, fallen = said.text("order").strip().splitlines()
    roles = [part.split()[-3] for part in order.split(",")]
    assert sorted(roles) == ["alpha", "beta", "gamma"] and roles[-1] == "alpha"
    first, _, last = (int(part.split()[-1]) for part in order.split(","))
    assert 120 <= first < last <= 280
    assert first - 20 <= int(fallen.split()[-1]) < last
    assert "Emerged" in said.text("trajectory")


def initialisation(said: Said) -> None:
    assert "beta_12  L2H0/score/q:res/k:L1H0/same" in said.text("setup")
    assert said.numbers("map") == pytest.approx([0.27, 0.32, 0.17, 0.24, 0], abs=0.06)
    sizes, numbers, commonest = (float(line.split("%")[0].split()[-1]) for line in lines(said, "sizes"))
    assert sizes < commonest + 5 and numbers > 85
    agreeing = int(said.text("lifted").strip().rsplit("most in ", 1)[1].split()[0])
    assert 4 <= agreeing <= 8
    assert said.text("lifted").count("differs") == 10 - agreeing


def language_model(said: Said) -> None:
    assert said.text("open").startswith("30 layers of 9 heads, 49,152 tokens")
    rows = [line.split() for line in lines(said, "agreement")[1:6]]
    assert {row[0] for row in rows} == {"L17H3", "L17H4", "L17H5", "L18H6", "L18H7"}
    assert all(3 < float(row[1]) < 4 and float(row[2].rstrip("%")) > 40 for row in rows)
    assert said.numbers("agreement")[-1] < 0.1
    whole, without, others = (float(line.split()[0]) for line in lines(said, "ablate"))
    assert without - whole > 2 and others - whole < 1


def own_task(said: Said) -> None:
    assert "L0H0/score/q:res/k:res/offset+2" in said.text("task")
    assert "400 pairs of tokens, 5 orbits" in said.text("symmetry")
    assert said.text("recovered").strip() == "found what was planted: True"
    assert "in context, with an induction circuit" in said.text("train")
    assert "L0H0" in said.text("train")
    shallow = said.text("shallow")
    assert "the model does not do skip" in shallow and said.numbers("shallow")[0] < 0.6


def own_weights(said: Said) -> None:
    assert float(said.text("train").split()[1]) < 0.05
    mapped, wrong = (float(line.split()[-1]) for line in lines(said, "compare"))
    assert mapped < 1e-4 and wrong > 1
    assert "in context, with an induction circuit" in said.text("analyze")


def lines(said: Said, cell: str) -> list[str]:
    return [line for line in said.text(cell).splitlines() if line.strip()]


def shares(said: Said, cell: str) -> list[float]:
    """The numbers at the beginning of a cell's lines."""
    first = [line.split()[0] for line in lines(said, cell)]
    return [float(word) for word in first if word.replace(".", "").isdigit()]


EXPECTED: dict[str, Callable[[Said], None]] = {
    "1_find_an_induction_head": induction,
    "2_memory_against_context": memory,
    "3_bayesian_model_averaging": averaging,
    "4_watch_a_circuit_form": training,
    "5_which_initialisation_wins": initialisation,
    "6_heads_of_a_language_model": language_model,
    "7_bring_your_own_task": own_task,
    "8_bring_your_own_weights": own_weights,
}

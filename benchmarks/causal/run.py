"""Causal structure in context: experiments on trained and constructed models, each in a file of its own.

`trained`, `generalisation`, `continuous`, `ordinary`, `selective`, `controls`, `questions`, `information`. The full run
keeps its rows as they come: started again after an interruption it goes on.
"""

from typing import Any

from benchmarks.causal import (
    continuous,
    controls,
    generalisation,
    information,
    ordinary,
    questions,
    selective,
    trained,
)
from benchmarks.partial import PartialRows

EXPERIMENTS = {
    "trained": trained.rows,
    "selective": selective.rows,
    "information": information.rows,
    "controls": controls.rows,
    "continuous": continuous.rows,
    "generalisation": generalisation.rows,
    "questions": questions.rows,
    "ordinary": ordinary.rows,
}


def run(*, small: bool = False, seed: int = 0) -> list[dict[str, Any]]:
    """Run all experiments; small: tiny ones, to see that they run."""
    kept = PartialRows() if small else PartialRows.of("causal")
    return [row for rows in EXPERIMENTS.values() for row in rows(small=small, seed=seed, kept=kept)]

"""Trained models: which circuit training finds, against the task's reference circuit.

`run` trains the models of `imir_lens.training.recipes.TRAINED` and analyses them, `tables` sums the rows up. What
differs from the reference is a finding about the trained model, or about the search; `docs/findings.md` says which.
"""

from benchmarks.trained.run import run
from benchmarks.trained.tables import tables

__all__ = ["run", "tables"]

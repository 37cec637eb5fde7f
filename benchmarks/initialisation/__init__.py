"""Which of three circuits wins from which initial coordinates: maps, their boundaries, and what predicts the winner.

`docs/dynamics.md` reads these tables. `map`: every cell of three planes of starts. `boundary`: rays across them, by
bisection. `random`: starts from a box, of which `predictions` are made. `training`: how far the outcome depends on how
runs are trained. `real`: the same starts lifted into models, all of whose weights are trained.
"""

from benchmarks.initialisation.run import run
from benchmarks.initialisation.tables import tables

__all__ = ["run", "tables"]

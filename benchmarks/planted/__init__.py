"""Circuits known by construction, and how well every detector finds them.

`run` builds the models and scores the detectors, `tables` sums the rows up.

All detectors get the same models and contexts. Truth is what was planted: its coordinates, and the heads and edges that
these use. A model that does its task with an accuracy below 0.9 is left out, before any detector has seen it.
"""

from benchmarks.planted.run import run
from benchmarks.planted.tables import tables

__all__ = ["run", "tables"]

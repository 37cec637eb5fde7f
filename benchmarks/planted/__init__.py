"""Circuits known by construction, and how well every detector finds them.

`run` builds the models and scores the detectors, `tables` sums the rows up.

All detectors get the same models and contexts. Truth is what was planted: its coordinates, and the heads and edges that
these use. A model that does its task with an accuracy below 0.9 is left out, before any detector has seen it.

Peers are run by published code where it can be had: EAP by TransformerLens 4.3 or later; EAP, integrated gradients over
edges and ACDC by the package `auto-circuit`, if it is installed (`published_peers` says how). It takes the place of our
ACDC, which finds the same circuits in about the same time. Of EAP-IG there is our implementation only: the package
`circuitkit` 0.2 has it too, but requires TransformerLens 3.8, and its licence is no open-source one.
"""

from benchmarks.planted.run import run
from benchmarks.planted.tables import tables

__all__ = ["run", "tables"]

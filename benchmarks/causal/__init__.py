"""Experiments on causal structure in context; see `run` for the list."""

from benchmarks.causal.run import run
from benchmarks.causal.tables import tables

__all__ = ["run", "tables"]

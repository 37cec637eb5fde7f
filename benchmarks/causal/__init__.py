"""Causal structure in context: what trained and constructed models do, their controls, and what the theorems say.

`docs/causal_experiments.md` reads these tables. `trained`: L_pa, and the errors of the weights. `generalisation`: other
numbers of examples than in training. `continuous`: vectors, whose log-likelihood no bilinear score is. `ordinary`:
transformers on the flattened sequence. `selective induction`: lags. `controls`: models that must not be called
Bayesian. `fewer heads` than examples, no biases at the `start`, the second layer's `domain`. `information`,
`concentration`, `gradient`: theorems on samples.
"""

from benchmarks.causal.run import run
from benchmarks.causal.tables import tables

__all__ = ["run", "tables"]

"""Causal structure in context: copyer heads and a head that averages over parents (Bayesian model averaging, BMA)."""

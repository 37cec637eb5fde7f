"""Models: the host of HookedTransformer-format checkpoints, the disentangled transformer, planted circuits."""

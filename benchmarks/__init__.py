"""Benchmarks: ratios against stated peers and limits, each taken within one run."""

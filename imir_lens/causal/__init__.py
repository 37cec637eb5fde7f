"""Causal structure in context: copyer heads and a head that averages over parents (Bayesian model averaging, BMA).

Importing this package does not import torch: the names below are loaded on first use.
"""

from typing import TYPE_CHECKING

from imir_lens.lazy_names import lazy_names

if TYPE_CHECKING:
    from imir_lens.causal.capture import capture_bma, capture_copyers
    from imir_lens.causal.concentration import concentration_exponents, expected_gaps, posterior_error_bound
    from imir_lens.causal.construction import construct
    from imir_lens.causal.contraction import chi_squared_coefficient, dobrushin_coefficient
    from imir_lens.causal.files import load_causal, save_causal
    from imir_lens.causal.flat_construction import construct_flat
    from imir_lens.causal.information import (
        chi_squared,
        estimate_chi_squared,
        estimate_mutual_information,
        mutual_information,
        pair_joints,
    )
    from imir_lens.causal.lag_transformer import LagTransformer, construct_lags
    from imir_lens.causal.leave_out import leave_out_example, leave_out_head, leave_out_relation
    from imir_lens.causal.parameters import column_error, effective_kernel, row_error
    from imir_lens.causal.score_gradient import expected_score_gradient
    from imir_lens.causal.training import train_causal
    from imir_lens.causal.transformer import CausalConfig, CausalTransformer
    from imir_lens.causal.verification import Verification, run_verification

__all__ = [
    "CausalConfig",
    "CausalTransformer",
    "LagTransformer",
    "Verification",
    "capture_bma",
    "capture_copyers",
    "chi_squared",
    "chi_squared_coefficient",
    "column_error",
    "concentration_exponents",
    "construct",
    "construct_flat",
    "construct_lags",
    "dobrushin_coefficient",
    "effective_kernel",
    "estimate_chi_squared",
    "estimate_mutual_information",
    "expected_gaps",
    "expected_score_gradient",
    "leave_out_example",
    "leave_out_head",
    "leave_out_relation",
    "load_causal",
    "mutual_information",
    "pair_joints",
    "posterior_error_bound",
    "row_error",
    "run_verification",
    "save_causal",
    "train_causal",
]

_HOMES = {
    "CausalConfig": "transformer",
    "CausalTransformer": "transformer",
    "LagTransformer": "lag_transformer",
    "Verification": "verification",
    "capture_bma": "capture",
    "capture_copyers": "capture",
    "chi_squared": "information",
    "chi_squared_coefficient": "contraction",
    "column_error": "parameters",
    "concentration_exponents": "concentration",
    "construct": "construction",
    "construct_flat": "flat_construction",
    "construct_lags": "lag_transformer",
    "dobrushin_coefficient": "contraction",
    "effective_kernel": "parameters",
    "estimate_chi_squared": "information",
    "estimate_mutual_information": "information",
    "expected_gaps": "concentration",
    "expected_score_gradient": "score_gradient",
    "leave_out_example": "leave_out",
    "leave_out_head": "leave_out",
    "leave_out_relation": "leave_out",
    "load_causal": "files",
    "mutual_information": "information",
    "pair_joints": "information",
    "posterior_error_bound": "concentration",
    "row_error": "parameters",
    "run_verification": "verification",
    "save_causal": "files",
    "train_causal": "training",
}

__getattr__ = lazy_names(__name__, _HOMES)

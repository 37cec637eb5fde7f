"""Fitting a TransformerLens state dict to the parameters of a model, or saying why it does not fit."""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from imir_lens.errors import CheckpointError
from imir_lens.models.config import TransformerConfig
from imir_lens.models.local import hidden_outside
from imir_lens.models.rotary import rotary_angles

# HookedTransformer keeps these tables beside its weights; they follow from the cfg.
_BUFFER = re.compile(r"blocks\.\d+\.attn\.(mask|IGNORE|rotary_sin|rotary_cos)")


def split_buffers(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a TransformerLens state dict as (weights, buffers)."""
    buffers = {name: value for name, value in state.items() if _BUFFER.fullmatch(name)}
    return {name: value for name, value in state.items() if name not in buffers}, buffers


def check_shapes(state: Mapping[str, Any], expected: Mapping[str, Tensor]) -> None:
    """Check that a state dict has exactly the expected names and shapes.

    Args:
        state: name → weight, without buffers.
        expected: name → parameter, in the order in which problems are reported; they may be on the device "meta".

    Raises:
        CheckpointError: naming the missing and unexpected weights, or the first whose shape is wrong.
    """
    missing = [name for name in expected if name not in state]
    unexpected = [name for name in state if name not in expected]
    if missing or unexpected:
        found = [
            f"{kind} {_listed(names)}" for kind, names in (("missing", missing), ("unexpected", unexpected)) if names
        ]
        raise CheckpointError(f"the state dict does not fit its cfg: {'; '.join(found)}")
    for name, parameter in expected.items():
        weight = state[name]
        if not isinstance(weight, Tensor) or not weight.is_floating_point():
            kind = weight.dtype if isinstance(weight, Tensor) else type(weight).__name__
            raise CheckpointError(f"{name} holds {kind}: expected a tensor of floating-point numbers")
        if weight.shape != parameter.shape:
            raise CheckpointError(
                f"{name} has shape {_shape(weight)}, but its cfg asks for {_shape(parameter)}: "
                "weights and cfg do not belong together"
            )


def check_weights(state: Mapping[str, Any], expected: Mapping[str, Tensor]) -> None:
    """Check names and shapes as `check_shapes` does, and that all numbers are finite.

    Raises:
        CheckpointError: naming the first weight that is wrong.
    """
    check_shapes(state, expected)
    for name in expected:
        for count, kind in ((state[name].isnan().sum(), "NaN"), (state[name].isinf().sum(), "infinite")):
            if count:
                raise CheckpointError(
                    f"{name} holds {int(count)} {kind} value{'s' if count > 1 else ''}: expected finite weights"
                )


def check_buffers(buffers: Mapping[str, Any], config: TransformerConfig) -> None:
    """Check the tables that a file carries against the cfg: a wrong cfg gives wrong logits without any other sign.

    Args:
        buffers: name → table, from `split_buffers`.
        config: what the cfg says.

    Raises:
        CheckpointError: when the file's masks or rotary tables differ from the cfg's.
    """
    for name, table in buffers.items():
        kind, layer = name.rpartition(".")[2], int(name.split(".")[1])
        if not isinstance(table, Tensor):
            raise CheckpointError(f"{name} holds {type(table).__name__}: expected a tensor")
        if kind == "mask" and not torch.equal(table.bool(), _mask(table, config, layer)):
            raise CheckpointError(
                f"{name} is not the mask of its cfg: check use_local_attn, attn_types and window_size"
            )
        if kind.startswith("rotary"):
            if config.positional_embedding_type != "rotary":
                raise CheckpointError(f"{name} is in the file, but its cfg has no rotary positions")
            angles = rotary_angles(config, layer)
            own = (angles.sin() if kind.endswith("sin") else angles.cos()).to(table)[: len(table)]
            if own.shape != table.shape or not torch.allclose(own, table, atol=1e-2):
                raise CheckpointError(
                    f"{name} contradicts its cfg: check n_ctx, rotary_dim, rotary_base and rotary_adjacent_pairs"
                )


def _mask(table: Tensor, config: TransformerConfig, layer: int) -> Tensor:
    """Return what a query sees by the cfg, in the shape of the file's table, which is empty since TransformerLens 3."""
    future = ~torch.ones_like(table, dtype=torch.bool).tril()
    if config.is_local(layer) and config.window_size is not None:
        return ~hidden_outside(future, config.window_size)
    return ~future


def _shape(tensor: Tensor) -> str:
    return str(list(tensor.shape))


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"

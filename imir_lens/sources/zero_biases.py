"""HookedTransformer has every bias; models of other formats often have none."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from imir_lens.models.config import TransformerConfig
from imir_lens.models.transformer import ImirTransformer


def with_zero_biases(state: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return a HookedTransformer's weights with zeros for the biases that are missing.

    Args:
        state: HookedTransformer's weights, perhaps without some biases.
        config: its config.

    Raises:
        CheckpointError: when the config contradicts itself.
        UnsupportedModelError: when it asks for something that is not implemented.
    """
    with torch.device("meta"):
        model = ImirTransformer(TransformerConfig.from_dict(config))
    biases = {name: p.shape for name, p in model.named_parameters() if is_bias(name)}
    return {**state, **{name: torch.zeros(shape) for name, shape in biases.items() if name not in state}}


def is_bias(name: str) -> bool:
    """Whether a weight's name in HookedTransformer's format is that of a bias, such as `b_Q`, `_b_K` or `ln1.b`."""
    return name.rpartition(".")[2].lstrip("_").startswith("b")

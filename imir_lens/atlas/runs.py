"""Forward passes that hand each layer's patterns and norm scales to a visitor, which may replace the patterns."""

from collections.abc import Callable
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from imir_lens.lens_model import LensModel

Visitor = Callable[[int, Tensor, Tensor | None], Tensor | None]
"""Takes layer, pattern `[context head query key]` and scales `[context position]` (None without norms)."""


def visit_patterns(
    lens: LensModel,
    tokens: Int[Tensor, "context position"],
    visit: Visitor,
    *,
    silenced: dict[int, list[int]] | None = None,
) -> Float[Tensor, "context position vocab"]:
    """Run a model and visit its patterns in order; errors as in `LensModel.run_with_hooks`.

    Args:
        lens: the model.
        tokens: contexts.
        visit: called for each layer; what it returns replaces the pattern.
        silenced: for each layer, heads whose output is set to zero.
    """
    scales: dict[int, Tensor] = {}
    hooks: list[Any] = []
    for layer in range(lens.weights.n_layers):
        if lens.weights.form.norm is not None:
            hooks.append((f"blocks.{layer}.ln1.hook_scale", _keep(scales, layer)))
        hooks.append((f"blocks.{layer}.attn.hook_pattern", _visitor(visit, scales, layer)))
        if silenced and layer in silenced:
            hooks.append((f"blocks.{layer}.attn.hook_z", _silence(silenced[layer])))
    return lens.run_with_hooks(tokens, hooks)


def _keep(scales: dict[int, Tensor], layer: int) -> Callable[..., None]:
    def hook(tensor: Tensor, hook: Any) -> None:
        scales[layer] = tensor.detach().flatten(2)[..., 0]

    return hook


def _visitor(visit: Visitor, scales: dict[int, Tensor], layer: int) -> Callable[..., Tensor | None]:
    def hook(pattern: Tensor, hook: Any) -> Tensor | None:
        return visit(layer, pattern, scales.get(layer))

    return hook


def _silence(heads: list[int]) -> Callable[..., Tensor]:
    def hook(z: Tensor, hook: Any) -> Tensor:
        z = z.clone()
        z[:, :, heads] = 0
        return z

    return hook

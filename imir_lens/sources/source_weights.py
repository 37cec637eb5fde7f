"""The weights of a model under its own names, taken out one by one, each with its shape checked."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.errors import CheckpointError


class SourceWeights:
    """A state dict that a converter empties.

    Half-precision weights come out in float32: every value stays what it was.

    Args:
        state: name → weight.
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._left = dict(state)

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def take(self, name: str, *shape: int) -> Float[Tensor, "..."]:
        """Return a weight, and count it as read.

        Args:
            name: its name.
            shape: the shape it must have.

        Raises:
            CheckpointError: when it is missing, no dense tensor of floating-point numbers, or of another shape.
        """
        if name not in self._left:
            some = ", ".join(map(repr, list(self._left)[:3])) or "nothing"
            raise CheckpointError(f"no weight {name!r} of shape {list(shape)}: still unread are {some}")
        weight = self._left.pop(name)
        if not isinstance(weight, Tensor) or not weight.is_floating_point():
            kind = str(weight.dtype).removeprefix("torch.") if isinstance(weight, Tensor) else type(weight).__name__
            raise CheckpointError(f"weight {name!r} holds {kind}: expected a tensor of floating-point numbers")
        if tuple(weight.shape) != shape:
            raise CheckpointError(
                f"weight {name!r} has shape {list(weight.shape)}, but the config asks for {list(shape)}: "
                "weights and config do not belong together"
            )
        return weight.to(torch.promote_types(weight.dtype, torch.float32))

    def take_or_zeros(self, name: str, *shape: int) -> Float[Tensor, "..."]:
        """Return a bias as `take` does, or zeros for a model that has none."""
        return self.take(name, *shape) if name in self._left else torch.zeros(shape)

    def drop(self, *endings: str) -> None:
        """Forget tables that follow from the config: those whose names end so."""
        self._left = {name: value for name, value in self._left.items() if not name.endswith(endings)}

    def finish(self) -> None:
        """Check that nothing is left.

        Raises:
            CheckpointError: naming weights that no part of the converted model would read.
        """
        if self._left:
            names = ", ".join(map(repr, list(self._left)[:3])) + (", …" if len(self._left) > 3 else "")
            raise CheckpointError(
                f"{len(self._left)} weights have no place in the converted model ({names}): this architecture is not "
                "what its config says, or has parts that are not supported"
            )

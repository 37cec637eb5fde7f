"""Running a hooked model and leaving it as it was found."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from imir_lens.errors import OptionError, UnsupportedModelError

Hook = Callable[..., Tensor | None]
_DISCARDED = "edit is discarded"  # in the warning of TransformerLens 4


@contextmanager
def inference(model: nn.Module) -> Iterator[None]:
    """Eval mode without gradients; the training flag of every submodule is put back afterwards."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def attached(model: Any, hooks: Sequence[tuple[str, Hook]]) -> Iterator[None]:
    """Attach forward hooks for one run and take exactly these off again, also after an error.

    TransformerLens' own context managers remove by nesting level, which in 3.x takes hooks along that a user has kept
    on the model.

    Raises:
        OptionError: when the model has no such hook, or it did not fire: an edit there would silently do nothing.
        UnsupportedModelError: when the model throws an edit away (a native bridge at `hook_attn_scores`).
    """
    points, added, silent = model.hook_dict, [], {name for name, _ in hooks}

    def noticed(name: str, function: Hook) -> Hook:
        def hook(tensor: Tensor, hook: Any) -> Tensor | None:
            silent.discard(name)
            return function(tensor, hook=hook)

        return hook

    try:
        for name, function in hooks:
            if name not in points:
                raise OptionError(f"the model has no hook {name!r}: expected e.g. 'blocks.0.attn.hook_pattern'")
            points[name].add_hook(noticed(name, function))
            added.append((points[name], points[name].fwd_hooks[-1]))
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=f".*{_DISCARDED}")
            yield
    except UserWarning as error:
        if _DISCARDED not in str(error):
            raise
        names = ", ".join(repr(name) for name, _ in hooks)
        raise UnsupportedModelError(
            f"the model throws away an edit at one of {names}: edit 'hook_pattern' instead ({error})"
        ) from error
    finally:
        for point, handle in added:
            handle.hook.remove()
            point.fwd_hooks[:] = [kept for kept in point.fwd_hooks if kept is not handle]
    if silent:
        raise OptionError(f"the hook {min(silent)!r} did not fire: it is switched off, or not part of the computation")

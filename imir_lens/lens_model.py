"""One way to run and hook any model we analyse: our own, a live HookedTransformer, a live TransformerBridge."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from imir_lens.checkpoints import load_checkpoint, naming, transformer_from
from imir_lens.errors import OptionError, UnsupportedModelError
from imir_lens.evaluation import at_queries
from imir_lens.hooking import Hook, attached, inference
from imir_lens.live_models import check_computes, is_hooked_transformer, twin_of
from imir_lens.models.disentangled import DisentangledTransformer
from imir_lens.models.transformer import ImirTransformer
from imir_lens.tasks.base import Batch
from imir_lens.weights import CircuitWeights

_PROBES, _PROBE_LENGTH = 4, 64


class LensModel:
    """A model with the one view of its weights, run without gradients and without leaving traces.

    Hook names are TransformerLens': `blocks.{l}.attn.hook_pattern` `[context head query key]`, `hook_q`, `hook_k`
    `[context position head d_head]`, and so on.

    Attributes:
        model: the wrapped model.
        weights: its weights, on the model's device.
        info: what a report says about it: source, sha256, family, n_layers, n_heads, d_model, d_head, d_vocab, n_ctx,
            positions, normalization, attn_only.
        twin: an ImirTransformer with the same weights (the model itself, where it is one).
    """

    def __init__(
        self,
        model: nn.Module,
        weights: CircuitWeights,
        *,
        source: str,
        sha256: str,
        family: str,
        twin: ImirTransformer | None = None,
    ) -> None:
        self.model: Any = model
        self.weights = weights
        self.info: dict[str, Any] = {
            "source": source,
            "sha256": sha256,
            "family": family,
            "n_layers": weights.n_layers,
            "n_heads": weights.n_heads,
            "d_model": weights.d_model,
            "d_head": weights.d_head,
            "d_vocab": weights.d_vocab,
            "n_ctx": weights.n_ctx,
            "positions": weights.form.positions,
            "normalization": weights.form.norm,
            "attn_only": weights.form.mlp == "none",
        }
        self.twin = twin

    #: Whether an edit of every layer's patterns was seen to change the logits.
    hooks_proved = False

    def on_twin(self) -> "LensModel":
        """Return the same weights opened as an ImirTransformer in full precision, whose parts can be looked into.

        Raises:
            UnsupportedModelError: when the model has no twin of this kind.
        """
        twin = self.twin if self.twin is not None else twin_of(self.model)
        if twin.cfg.dtype in (torch.float16, torch.bfloat16):
            twin = copy.deepcopy(twin).float()
        if twin is self.model:
            return self
        info: dict[str, Any] = {name: self.info[name] for name in ("source", "sha256", "family")}
        return LensModel(twin, self.weights, **info)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.weights.W_E.device

    def logits(self, tokens: Int[Tensor, "context position"]) -> Float[Tensor, "context position vocab"]:
        """Return the logits at every position; errors as in `run_with_hooks`."""
        return self.run_with_hooks(tokens, [])

    def query_logits(self, batch: Batch) -> Float[Tensor, "context query vocab"]:
        """Return the logits where a task's contexts ask, what `ablate` returns for the model as it is.

        Args:
            batch: contexts of a task.
        """
        return at_queries(self.logits(batch.tokens), batch)

    def run_with_hooks(
        self, tokens: Int[Tensor, "context position"], fwd_hooks: Sequence[tuple[str, Hook]]
    ) -> Float[Tensor, "context position vocab"]:
        """Run with hooks that are gone afterwards; hooks that were already on the model stay and act.

        Args:
            tokens: contexts.
            fwd_hooks: pairs of a hook name and a function `(tensor, hook) -> tensor or None`.

        Returns:
            The logits at every position.

        Raises:
            OptionError: when a hook is unknown or did not fire, or the contexts do not fit the model.
            UnsupportedModelError: when the model throws an edit away.
        """
        self._check(tokens)
        with inference(self.model), attached(self.model, fwd_hooks):
            return self.model(tokens.to(self.device))

    def run_with_cache(
        self, tokens: Int[Tensor, "context position"], names: Sequence[str]
    ) -> tuple[Float[Tensor, "context position vocab"], dict[str, Tensor]]:
        """Run and keep the activations at the named hooks.

        Args:
            tokens: contexts.
            names: hook names.

        Returns:
            The logits at every position, and copies of the activations by name.

        Raises:
            OptionError: as `run_with_hooks`.
        """
        cache: dict[str, Tensor] = {}

        def keep(name: str) -> Hook:
            def hook(tensor: Tensor, hook: Any) -> None:
                cache[name] = tensor.detach().clone()

            return hook

        logits = self.run_with_hooks(tokens, [(name, keep(name)) for name in dict.fromkeys(names)])
        return logits, {name: cache[name] for name in names}

    def check_hook_effect(self, tokens: Int[Tensor, "context position"]) -> None:
        """Make sure that editing a pattern changes what the model computes, in every layer.

        Each layer's patterns are set to zero once. If its heads write anything at all, the logits must change:
        otherwise edits are being thrown away, and every ablation would look harmless.

        Args:
            tokens: a few contexts.

        Raises:
            UnsupportedModelError: naming the layer whose edits have no effect.
        """
        for layer in range(self.weights.n_layers):
            pattern, value = f"blocks.{layer}.attn.hook_pattern", f"blocks.{layer}.attn.hook_v"
            plain, cache = self.run_with_cache(tokens, [pattern, value])
            edited = self.run_with_hooks(tokens, [(pattern, lambda p, hook: torch.zeros_like(p))])
            shared_by = cache[pattern].shape[1] // cache[value].shape[2]  # heads to a group of values
            values = cache[value].repeat_interleave(shared_by, dim=2)
            mixed = torch.einsum("chqk,ckhd->cqhd", cache[pattern].to(values), values)
            # A concatenated stream is narrower in lower layers than the view's W_O, which is padded with zeros.
            written = torch.einsum("cqhd,hdm->cqm", mixed, self.weights.W_O[layer, :, : mixed.shape[-1]].to(mixed))
            # A write below float32's resolution of the stream cannot change the logits even where edits work.
            if float(written.abs().max()) > 1e-5 * float(self.weights.W_E.abs().max()) and torch.equal(plain, edited):
                raise UnsupportedModelError(
                    f"editing {pattern!r} does not change the logits of this {self.info['family']}, though layer "
                    f"{layer} writes to the residual stream: its hooks are not connected, so nothing can be ablated"
                )

        self.hooks_proved = True

    def _check(self, tokens: Tensor) -> None:
        if tokens.shape[1] > self.weights.n_ctx:
            raise OptionError(f"contexts of {tokens.shape[1]} positions: expected at most n_ctx={self.weights.n_ctx}")
        if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < self.weights.d_vocab:
            raise OptionError(
                f"tokens from {int(tokens.min())} to {int(tokens.max())}: expected 0 to {self.weights.d_vocab - 1}, "
                "the model's vocabulary"
            )


def open_model(
    model: nn.Module | str | Path,
    *,
    config: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    device: str | torch.device | None = None,
) -> LensModel:
    """Open a checkpoint or a live model for analysis.

    Args:
        model: a path as in `load_checkpoint`, an ImirTransformer, any HookedRootModule with a `circuit_weights()`
            method (DisentangledTransformer), a HookedTransformer (TransformerLens 3) or a native TransformerBridge (4).
        config: for a path: a JSON file with the model's config.
        overrides: for a path: single config fields.
        device: where to analyse it; a live model is moved there. By default, where it is (a path: the CPU).

    Returns:
        The opened model.

    Raises:
        CheckpointError: as `load_checkpoint`.
        UnsupportedModelError: when the model is of another kind, has a part that the analysis does not cover, or
            computes something else than its weights say.
        OptionError: when `config` or `overrides` come with a live model, or there is no such device.
    """
    target = None if device is None else usable_device(device)
    live = not isinstance(model, str | Path)
    if isinstance(model, str | Path):
        opened = _open_file(model, config=config, overrides=overrides)
    elif config is not None or overrides:
        raise OptionError("config and overrides describe a checkpoint file; a live model has its own config")
    else:
        opened = _open_live(model)
    if target is not None and target != opened.device:
        quiet = {"print_details": False} if is_hooked_transformer(model) else {}
        opened.model.to(target, **quiet)
        opened.weights = opened.weights.to(target)
        if opened.twin is not None:
            opened.twin.to(target)
    twin = opened.twin
    if live and twin is not None and twin is not model:
        length = min(opened.weights.n_ctx, _PROBE_LENGTH)
        probes = torch.randint(opened.weights.d_vocab, (_PROBES, length), generator=torch.Generator().manual_seed(0))
        probes = probes.to(opened.device)
        check_computes(twin, probes, opened.logits(probes), family=opened.info["family"])
    return opened


def _open_live(model: nn.Module) -> LensModel:
    twin, name = twin_of(model), type(model).__name__
    own = getattr(model, "circuit_weights", None)
    weights = own() if callable(own) else CircuitWeights.from_state(twin.state_dict(), twin.cfg)
    return LensModel(model, weights, source=name, sha256=weights.sha256(), family=name, twin=twin)


def _open_file(path: str | Path, *, config: str | Path | None, overrides: Mapping[str, Any] | None) -> LensModel:
    checkpoint = load_checkpoint(path, config=config, overrides=overrides)
    model = transformer_from(checkpoint)
    file: dict[str, Any] = {"source": checkpoint.source, "sha256": checkpoint.sha256}
    if isinstance(model, DisentangledTransformer):
        return LensModel(model, model.circuit_weights(), **file, family=type(model).__name__)
    with naming(checkpoint.source):
        weights = CircuitWeights.from_state(checkpoint.state_dict, model.cfg)
    return LensModel(model, weights, **file, family="HookedTransformer", twin=model)


def usable_device(device: str | torch.device) -> torch.device:
    """Return the device; raises OptionError when it does not exist or cannot be used."""
    try:
        probe = torch.zeros(1, device=device)
        probe.item()  # the device "meta" holds no numbers
        return probe.device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise OptionError(f"device {str(device)!r} cannot be used ({reason}): try 'cpu'") from error

"""One view of a transformer's weights over all model kinds."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.attention_form import PLAIN, AttentionForm
from imir_lens.errors import CheckpointError, UnsupportedModelError
from imir_lens.folding import expanded, fold_norm, norm_parameters
from imir_lens.models.config import TransformerConfig


@dataclass(frozen=True, eq=False)
class CircuitWeights:
    """The weights of a transformer's attention, embedding and unembedding, under TransformerLens' names and shapes.

    A head's score of query i for key j is `(x_i W_Q + b_Q)·(x_j W_K + b_K) / scale`; its output is
    `Σ_j p_ij (x_j W_V + b_V) W_O`, and `b_O` is added once a layer. Detached; axes that share a name have one size.

    Norms are folded in: where the model has them, x stands for the stream divided by its (centred) root mean square,
    and W_Q, W_K, W_V, W_U and their biases hold the norm's weight, bias and centring. Grouped keys and values have
    one slice a head. What the model does besides is in `form`; MLPs are not held.

    Attributes:
        W_E: token embedding.
        W_pos: position embedding, added to it.
        W_Q: query weights.
        W_K: key weights.
        W_V: value weights.
        W_O: output weights.
        b_Q: query bias; zeros when the model has none, like the other biases.
        b_K: key bias.
        b_V: value bias.
        b_O: output bias.
        W_U: unembedding.
        b_U: unembedding bias.
        scale: what scores are divided by, usually √d_head.
        form: norm, positions, masks, caps and MLPs of the model.
        pos_Q, pos_K: what shortformer positions add to queries and keys; None for other positions.

    Raises:
        CheckpointError: when shapes contradict each other; the message names the weight and its axes.
    """

    W_E: Float[Tensor, "vocab d_model"]
    W_pos: Float[Tensor, "n_ctx d_model"]
    W_Q: Float[Tensor, "layer head d_model d_head"]
    W_K: Float[Tensor, "layer head d_model d_head"]
    W_V: Float[Tensor, "layer head d_model d_head"]
    W_O: Float[Tensor, "layer head d_head d_model"]
    b_Q: Float[Tensor, "layer head d_head"]
    b_K: Float[Tensor, "layer head d_head"]
    b_V: Float[Tensor, "layer head d_head"]
    b_O: Float[Tensor, "layer d_model"]
    W_U: Float[Tensor, "d_model vocab_out"]
    b_U: Float[Tensor, " vocab_out"]
    scale: float
    form: AttentionForm = PLAIN
    pos_Q: Float[Tensor, "layer head n_ctx d_head"] | None = None
    pos_K: Float[Tensor, "layer head n_ctx d_head"] | None = None

    def __post_init__(self) -> None:
        sizes: dict[str, int] = {}
        for name, axes in _AXES.items():
            shape = tuple(getattr(self, name).shape)
            named = dict(zip(axes, shape, strict=False))
            if len(shape) != len(axes) or any(sizes.setdefault(axis, n) != n for axis, n in named.items()):
                expected = ", ".join(f"{axis}={sizes[axis]}" if axis in sizes else axis for axis in axes)
                raise CheckpointError(f"{name} has shape {list(shape)}: expected [{expected}] to fit the other weights")

    @property
    def n_layers(self) -> int:
        """Number of layers."""
        return self.W_Q.shape[0]

    @property
    def n_heads(self) -> int:
        """Heads in each layer."""
        return self.W_Q.shape[1]

    @property
    def d_model(self) -> int:
        """Width of the residual stream."""
        return self.W_E.shape[1]

    @property
    def d_head(self) -> int:
        """Width of a head."""
        return self.W_Q.shape[3]

    @property
    def d_vocab(self) -> int:
        """Number of input tokens."""
        return self.W_E.shape[0]

    @property
    def d_vocab_out(self) -> int:
        """Number of output tokens."""
        return self.W_U.shape[1]

    @property
    def n_ctx(self) -> int:
        """The longest context."""
        return self.W_pos.shape[0]

    def W_QK(self, layer: int, head: int) -> Float[Tensor, "d_model d_model"]:
        """Return `W_Q W_Kᵀ / scale`, so that a score without biases is `x_i W_QK x_jᵀ`."""
        return self.W_Q[layer, head] @ self.W_K[layer, head].T / self.scale

    def W_OV(self, layer: int, head: int) -> Float[Tensor, "d_model d_model"]:
        """Return `W_V W_O`: what the head writes for each direction that it reads."""
        return self.W_V[layer, head] @ self.W_O[layer, head]

    def to(self, device: torch.device | str) -> "CircuitWeights":
        """Return the weights on another device."""
        held = [*_AXES, *(name for name in ("pos_Q", "pos_K") if getattr(self, name) is not None)]
        return replace(self, **{name: getattr(self, name).to(device) for name in held})

    def sha256(self) -> str:
        """Return a digest of names, shapes and values: equal for equal weights, whatever model they came from."""
        digest = hashlib.sha256(f"scale {self.scale:.9g}".encode())
        if not self.form.plain:
            digest.update(repr(self.form).encode())
        for name in _AXES:
            value = getattr(self, name).detach().to("cpu", torch.float32).contiguous()
            digest.update(f" {name} {list(value.shape)} ".encode())
            digest.update(value.numpy().astype("<f4").tobytes())
        return digest.hexdigest()

    @classmethod
    def from_state(cls, state_dict: Mapping[str, Tensor], config: TransformerConfig) -> "CircuitWeights":
        """Read the weights of a HookedTransformer-format state dict.

        Args:
            state_dict: with TransformerLens' names and shapes; missing biases are zeros, half precision becomes
                float32.
            config: the model's config.

        Returns:
            The weights, detached copies.

        Raises:
            UnsupportedModelError: when the model has a part that the view does not cover.
            CheckpointError: when a weight is missing, or its shape contradicts the config.
        """
        require_supported(config)
        source = state_dict.get("embed.W_E")
        if source is None:
            raise CheckpointError("no weight 'embed.W_E': expected a HookedTransformer state dict")
        form = AttentionForm.of(config)
        sizes = {
            "layer": config.n_layers,
            "head": config.n_heads,
            "group": config.n_kv_heads,
            "d_model": config.d_model,
            "d_head": config.d_head,
            "vocab": config.d_vocab,
            "vocab_out": config.d_vocab_out,
            "n_ctx": config.n_ctx,
        }
        read = _Reader(state_dict, sizes, like=source)
        outer = {"W_E": "embed", "W_pos": "pos_embed", "W_U": "unembed", "b_U": "unembed"}
        # A config that names its groups has grouped names, even where every head is a group of its own.
        grouped = () if config.n_key_value_heads is None else ("W_K", "W_V", "b_K", "b_V")
        values: dict[str, Tensor] = {}
        for name, axes in _AXES.items():
            if name == "W_pos" and form.positions not in ("standard", "shortformer"):
                values[name] = values["W_E"].new_zeros(1, 1).expand(config.n_ctx, config.d_model)
            elif name in outer:
                values[name] = read(f"{outer[name]}.{name}", axes)
            else:
                stem, axes = ("_", ["layer", "group", *axes[2:]]) if name in grouped else ("", axes)
                layers = range(config.n_layers)
                stacked = torch.stack([read(f"blocks.{layer}.attn.{stem}{name}", axes[1:]) for layer in layers])
                values[name] = expanded(stacked, config.n_heads) if name in grouped else stacked
        extra = {}
        if form.positions == "shortformer":
            # Added after the norm: these positions are read by the weights as they are, before anything is folded.
            extra = {f"pos_{x}": torch.einsum("pm,lhmd->lhpd", values["W_pos"], values[f"W_{x}"]) for x in "QK"}
        _fold_norms(values, state_dict, config)
        return cls(**values, **extra, scale=config.score_scale, form=form)


def _fold_norms(values: dict[str, Tensor], state_dict: Mapping[str, Tensor], config: TransformerConfig) -> None:
    """Fold each layer's first norm into its queries, keys and values, and the last norm into the unembedding."""
    kind = config.normalization_type
    if kind is None:
        return
    for layer in range(config.n_layers):
        norm = norm_parameters(state_dict, f"blocks.{layer}.ln1", values["W_E"])
        for x in "QKV":
            weight, bias = values[f"W_{x}"][layer], values[f"b_{x}"][layer]
            folded = fold_norm(weight, bias, norm, centred=kind.startswith("LN"))
            values[f"W_{x}"][layer], values[f"b_{x}"][layer] = folded
    norm = norm_parameters(state_dict, "ln_final", values["W_E"])
    centred = kind.startswith("LN") and not config.final_rms
    values["W_U"], values["b_U"] = fold_norm(values["W_U"], values["b_U"], norm, centred=centred)


class _Reader:
    """Takes weights out of a state dict, checking shapes and filling in biases that are not there."""

    def __init__(self, state_dict: Mapping[str, Tensor], sizes: Mapping[str, int], *, like: Tensor) -> None:
        self.state_dict = state_dict
        self.sizes = sizes
        self.dtype = like.dtype if like.dtype == torch.float64 else torch.float32
        self.device = like.device

    def __call__(self, key: str, axes: list[str]) -> Tensor:
        shape = [self.sizes[axis] for axis in axes]
        value = self.state_dict.get(key)
        if value is None:
            if key.rpartition(".")[2].lstrip("_").startswith("b_"):
                return torch.zeros(shape, dtype=self.dtype, device=self.device)
            raise CheckpointError(f"no weight {key!r}: expected one of shape {shape}")
        if list(value.shape) != shape:
            expected = ", ".join(f"{axis}={size}" for axis, size in zip(axes, shape, strict=True))
            raise CheckpointError(f"{key!r} has shape {list(value.shape)}, but the config says [{expected}]")
        return value.detach().to(self.device, self.dtype, copy=True)


def require_supported(config: TransformerConfig) -> None:
    """Check that the analysis covers a model: all but those whose output vocabulary is another than the input's.

    Raises:
        UnsupportedModelError: naming what is not supported.
    """
    if config.d_vocab_out != config.d_vocab:
        raise UnsupportedModelError(
            f"the analysis does not support an output vocabulary of another size (d_vocab_out={config.d_vocab_out}, "
            f"d_vocab={config.d_vocab}): relations between tokens read and tokens predicted would have no meaning"
        )


# The axes of each weight, as its annotation names them.
_AXES: dict[str, list[str]] = {
    f.name: f.type.dim_str.split()  # type: ignore[union-attr]
    for f in fields(CircuitWeights)
    if f.name not in ("scale", "form", "pos_Q", "pos_K")
}
WEIGHT_NAMES = tuple(_AXES)

"""One view of a transformer's weights over all model kinds."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.errors import CheckpointError, UnsupportedModelError
from imir_lens.models.config import TransformerConfig

_NORMS = {"LN": "LayerNorm", "LNPre": "folded LayerNorm", "RMS": "RMSNorm", "RMSPre": "folded RMSNorm"}


@dataclass(frozen=True, eq=False)
class CircuitWeights:
    """The weights of an attention-only transformer without norms, under TransformerLens' names and shapes.

    A head's score of query i for key j is `(x_i W_Q + b_Q)·(x_j W_K + b_K) / scale`; its output is
    `Σ_j p_ij (x_j W_V + b_V) W_O`, and `b_O` is added once a layer. Detached; axes that share a name have one size.

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
        return replace(self, **{name: getattr(self, name).to(device) for name in _AXES})

    def sha256(self) -> str:
        """Return a digest of names, shapes and values: equal for equal weights, whatever model they came from."""
        digest = hashlib.sha256(f"scale {self.scale:.9g}".encode())
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
        sizes = {
            "layer": config.n_layers,
            "head": config.n_heads,
            "d_model": config.d_model,
            "d_head": config.d_head,
            "vocab": config.d_vocab,
            "vocab_out": config.d_vocab_out,
            "n_ctx": config.n_ctx,
        }
        source = state_dict.get("embed.W_E")
        if source is None:
            raise CheckpointError("no weight 'embed.W_E': expected a HookedTransformer state dict")
        read = _Reader(state_dict, sizes, like=source)
        outer = {"W_E": "embed", "W_pos": "pos_embed", "W_U": "unembed", "b_U": "unembed"}
        # A config that names its groups has grouped names, even where every head is a group of its own.
        stems = {} if config.n_key_value_heads is None else dict.fromkeys(("W_K", "W_V", "b_K", "b_V"), "_")
        values = {
            name: read(f"{outer[name]}.{name}", axes)
            if name in outer
            else torch.stack(
                [read(f"blocks.{layer}.attn.{stems.get(name, '')}{name}", axes[1:]) for layer in range(config.n_layers)]
            )
            for name, axes in _AXES.items()
        }
        return cls(**values, scale=config.score_scale)


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
    """Check that the analysis covers a model: attention only, no norm, learned positions, causal, no window, no cap.

    Raises:
        UnsupportedModelError: naming each part that is not supported yet.
    """
    missing = []
    if not config.attn_only:
        missing.append("MLP layers (attn_only=False)")
    if config.normalization_type is not None:
        norm = _NORMS.get(config.normalization_type, "normalization")
        missing.append(f"{norm} (normalization_type={config.normalization_type!r})")
    if config.positional_embedding_type != "standard":
        missing.append(f"{config.positional_embedding_type} positions")
    if config.attention_dir != "causal":
        missing.append(f"{config.attention_dir} attention")
    if config.n_kv_heads != config.n_heads:
        missing.append(f"grouped queries (n_key_value_heads={config.n_kv_heads})")
    if any(config.is_local(layer) for layer in range(config.n_layers)):
        missing.append(f"local attention (window_size={config.window_size})")
    if config.attn_scores_soft_cap > 0:
        missing.append(f"soft-capped attention scores (attn_scores_soft_cap={config.attn_scores_soft_cap})")
    if config.output_logits_soft_cap > 0:
        missing.append(f"soft-capped logits (output_logits_soft_cap={config.output_logits_soft_cap})")
    if config.d_vocab_out != config.d_vocab:
        missing.append(f"an output vocabulary of another size (d_vocab_out={config.d_vocab_out})")
    if missing:
        listed = missing[0] if len(missing) == 1 else f"{', '.join(missing[:-1])} or {missing[-1]}"
        has = {1: "has it", 2: "has both"}.get(len(missing), "has all of them")
        raise UnsupportedModelError(f"the analysis does not support {listed} yet; this model {has}")


# The axes of each weight, as its annotation names them.
_AXES: dict[str, list[str]] = {f.name: f.type.dim_str.split() for f in fields(CircuitWeights) if f.name != "scale"}  # type: ignore[union-attr]

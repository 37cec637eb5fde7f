"""The shape of a HookedTransformer-format model, read from any TransformerLens cfg."""

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from reprlib import repr as short
from types import NoneType
from typing import Any, get_args

import numpy as np
import torch

from imir_lens.errors import CheckpointError, UnsupportedModelError
from imir_lens.models.cfg_fields import as_hooked_transformer, refuse_unsupported

_SUPPORTED: dict[str, tuple[str | None, ...]] = {
    "positional_embedding_type": ("standard", "rotary", "alibi", "shortformer"),
    "normalization_type": (None, "LN", "LNPre", "RMS", "RMSPre"),
    "attention_dir": ("causal", "bidirectional"),
    "act_fn": ("relu", "gelu", "silu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "solu_ln"),
}
_DTYPES = {str(dtype): dtype for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)}
_MOST = 10**15  # what sizes are multiplied by stays a number that can be printed
_LARGEST = sys.float_info.max
_REQUIRED = ("d_model", "d_head", "n_layers", "n_ctx", "d_vocab")


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """What determines the computation of a HookedTransformer, under TransformerLens names and defaults.

    Attributes:
        d_model: width of the residual stream.
        d_head: width of a head.
        n_layers: number of blocks.
        n_ctx: longest context.
        d_vocab: number of input tokens.
        n_heads: heads a layer; −1 means d_model / d_head.
        d_vocab_out: number of output tokens; −1 means d_vocab.
        d_mlp: MLP width; None means 4 · d_model.
        attn_only: no MLPs.
        act_fn: activation of the MLPs.
        gated_mlp: MLPs whose activations multiply a second projection; without influence if attn_only.
        parallel_attn_mlp: attention and MLP read the same residual stream, and both write to it.
        normalization_type: None, LN, LNPre, RMS or RMSPre (`Pre`: weights folded away).
        eps: added to the variance before its root.
        final_rms: the last norm is an RMS norm even if the others are layer norms.
        positional_embedding_type: `standard` (learned, added to the embedding), `rotary`, `alibi` (W_pos is there, and
            not read), or `shortformer` (learned, added to what queries and keys read in every layer, after the norm).
        rotary_dim: leading entries of q and k that are rotated; None means d_head.
        rotary_base: the base of the rotation frequencies.
        rotary_base_local: their base in local layers; None means rotary_base.
        rotary_adjacent_pairs: rotate (0, 1), (2, 3), … instead of (0, n/2), (1, n/2 + 1), …
        attention_dir: `causal` or `bidirectional`.
        use_local_attn: layers differ by attn_types.
        attn_types: `global` or `local` for each layer, or for more layers than there are.
        window_size: keys that a query of a local layer sees, itself included; HookedTransformer has no window with
            bidirectional attention, whatever the layer.
        use_attn_scale: divide the scores by attn_scale.
        attn_scale: −1 means √d_head.
        attn_scores_soft_cap: scaled scores s become cap · tanh(s / cap); 0 or less: no cap.
        output_logits_soft_cap: the same of the logits.
        n_key_value_heads: keys and values are shared by n_heads / n_key_value_heads heads each; None: not grouped.
        ungroup_grouped_query_attention: `hook_k` and `hook_v` hold one slice per head also when grouped.
        initializer_range: standard deviation of fresh weights; −1 means 0.8 / √d_model.
        dtype: of the parameters.
        use_attn_result, use_split_qkv_input, use_attn_in, use_hook_mlp_in: which optional hooks fire.
        device: where the model is; set by the model, ignored in a cfg that is read.

    Raises:
        CheckpointError: when the values contradict each other.
        UnsupportedModelError: for a positional embedding, norm, activation or direction that is not implemented.
    """

    d_model: int
    d_head: int
    n_layers: int
    n_ctx: int
    d_vocab: int
    n_heads: int = -1
    d_vocab_out: int = -1
    d_mlp: int | None = None
    attn_only: bool = False
    act_fn: str | None = "relu"
    gated_mlp: bool = False
    parallel_attn_mlp: bool = False
    normalization_type: str | None = "LN"
    eps: float = 1e-5
    final_rms: bool = False
    positional_embedding_type: str = "standard"
    rotary_dim: int | None = None
    rotary_base: float = 10000.0
    rotary_base_local: float | None = None
    rotary_adjacent_pairs: bool = False
    attention_dir: str = "causal"
    use_local_attn: bool = False
    attn_types: tuple[str, ...] | None = None
    window_size: int | None = None
    use_attn_scale: bool = True
    attn_scale: float = -1.0
    attn_scores_soft_cap: float = -1.0
    output_logits_soft_cap: float = -1.0
    n_key_value_heads: int | None = None
    ungroup_grouped_query_attention: bool = False
    initializer_range: float = -1.0
    dtype: torch.dtype = torch.float32
    use_attn_result: bool = False
    use_split_qkv_input: bool = False
    use_attn_in: bool = False
    use_hook_mlp_in: bool = False
    device: str = field(default="cpu", compare=False)

    def __post_init__(self) -> None:
        self._require_positive("d_model", "d_head", "n_layers", "n_ctx", "d_vocab")
        if self.n_heads == -1:
            if self.d_model % self.d_head:
                raise CheckpointError(
                    f"cfg gives no n_heads, and d_model={self.d_model} is not a multiple of d_head={self.d_head}"
                )
            self._set(n_heads=self.d_model // self.d_head)
        if self.d_vocab_out == -1:
            self._set(d_vocab_out=self.d_vocab)
        if self.d_mlp is None:
            self._set(d_mlp=4 * self.d_model)
        if self.rotary_dim is None and self.positional_embedding_type == "rotary":
            self._set(rotary_dim=self.d_head)
        if self.attn_scale == -1.0 and self.use_attn_scale:
            self._set(attn_scale=math.sqrt(self.d_head))
        if self.initializer_range < 0:
            self._set(initializer_range=0.8 / math.sqrt(self.d_model))
        self._check_supported()
        self._check_consistent()

    @property
    def score_scale(self) -> float:
        """What q·k is divided by."""
        return self.attn_scale if self.use_attn_scale else 1.0

    def is_local(self, layer: int) -> bool:
        """Whether a layer's queries see a window of keys only."""
        return self.use_local_attn and self.attn_types is not None and self.attn_types[layer] == "local"

    def rotary_base_of(self, layer: int) -> float:
        """Return the base of a layer's rotation frequencies."""
        local = self.rotary_base_local is not None and self.is_local(layer)
        return self.rotary_base_local if local else self.rotary_base  # type: ignore[return-value]

    @property
    def has_position_embedding(self) -> bool:
        """Whether there is a W_pos; HookedTransformer keeps one for ALiBi too, where nothing reads it."""
        return self.positional_embedding_type != "rotary"

    @property
    def n_kv_heads(self) -> int:
        """Number of distinct key and value heads."""
        return self.n_key_value_heads or self.n_heads

    @property
    def n_numbers(self) -> int:
        """Numbers in the weight matrices and the mask: nearly all that the model holds."""
        positions = self.n_ctx if self.has_position_embedding else 0
        a_layer = 2 * (self.n_heads + self.n_kv_heads) * self.d_model * self.d_head
        if not self.attn_only:
            a_layer += (2 + self.gated_mlp) * self.d_model * (self.d_mlp or 4 * self.d_model)
        outer = (self.d_vocab + self.d_vocab_out + positions) * self.d_model
        return outer + self.n_layers * a_layer + self.n_ctx**2

    @classmethod
    def from_dict(cls, cfg: Mapping[str, Any]) -> "TransformerConfig":
        """Read a cfg dict as TransformerLens 2.18, 3.9 or 4.x writes it (`cfg.to_dict()`, or JSON of it).

        Args:
            cfg: field names and values; numpy scalars and dtype names are understood, None means the default.

        Raises:
            CheckpointError: when a required field is missing, or a value has the wrong type or contradicts another.
            UnsupportedModelError: when it asks for a computation that is not implemented, or names an unknown field.
        """
        types = {f.name: f.type for f in fields(cls)}
        refuse_unsupported(cfg, known=frozenset(types))
        cfg = as_hooked_transformer(cfg)
        if cfg.get("init_mode", "gpt2") != "gpt2":  # then initializer_range is a gain, not a standard deviation
            cfg.pop("initializer_range", None)
        missing = [name for name in _REQUIRED if cfg.get(name) is None]
        if missing:
            raise CheckpointError(
                f"cfg has no {', '.join(missing)}: expected a HookedTransformer cfg with {', '.join(_REQUIRED)}; "
                "give them in the config or as overrides"
            )
        nullable = ("normalization_type", "act_fn")  # None is a value of these, and not their default
        return cls(
            **{
                name: typed_field(name, cfg[name], kind)
                for name, kind in types.items()
                if name in cfg and name != "device" and (cfg[name] is not None or name in nullable)
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a cfg dict that `from_dict`, and HookedTransformer where it exists, can read."""
        return asdict(self)

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _require_positive(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value < 1:
                raise CheckpointError(f"cfg gives {name}={short(value)}: expected a whole number of at least 1")
            if value > _MOST:
                raise CheckpointError(f"cfg gives {name}={short(value)}: expected a whole number of at most {_MOST:,}")

    def _check_supported(self) -> None:
        for name, supported in _SUPPORTED.items():
            value = getattr(self, name)
            if value not in supported and not (name == "act_fn" and self.attn_only):
                raise UnsupportedModelError(
                    f"cfg sets {name}={value!r}, which is not supported yet (supported: "
                    f"{', '.join(map(str, supported))})"
                )
        if self.dtype not in _DTYPES.values():
            raise UnsupportedModelError(f"cfg sets dtype={self.dtype}, expected one of {', '.join(_DTYPES)}")

    def _check_consistent(self) -> None:
        self._require_positive("n_heads", "d_vocab_out", "d_mlp")
        if self.n_key_value_heads is not None:
            self._require_positive("n_key_value_heads")
            if self.n_heads % self.n_key_value_heads:
                raise CheckpointError(
                    f"cfg gives n_key_value_heads={self.n_key_value_heads}: expected a divisor of n_heads, which is "
                    f"{self.n_heads}"
                )
            if self.use_attn_in:
                raise CheckpointError("cfg gives use_attn_in=True with grouped keys; use use_split_qkv_input instead")
        if self.parallel_attn_mlp and self.attn_only:
            raise CheckpointError(
                "cfg gives parallel_attn_mlp=True with attn_only=True: expected an MLP beside attention"
            )
        if self.rotary_dim is not None and self.positional_embedding_type == "rotary":
            self._require_positive("rotary_dim")
            if self.rotary_dim % 2 or self.rotary_dim > self.d_head:
                raise CheckpointError(
                    f"cfg gives rotary_dim={self.rotary_dim}: expected an even number of at most d_head={self.d_head}"
                )
        if self.use_local_attn:
            self._check_local()
        positive = ["rotary_base"]
        positive += ["attn_scale"] if self.use_attn_scale else []
        positive += ["rotary_base_local"] if self.rotary_base_local is not None else []
        for name in positive:
            if getattr(self, name) <= 0:
                raise CheckpointError(f"cfg gives {name}={getattr(self, name)}: expected a positive number")
        if self.eps < 0:
            raise CheckpointError(f"cfg gives eps={self.eps}: expected 0 or more")

    def _check_local(self) -> None:
        if self.attn_types is None or self.window_size is None:
            raise CheckpointError("cfg gives use_local_attn=True: expected attn_types and window_size with it")
        self._require_positive("window_size")
        unknown = [kind for kind in self.attn_types if kind not in ("global", "local")]
        if unknown or len(self.attn_types) < self.n_layers:
            raise CheckpointError(
                f"cfg gives attn_types={short(self.attn_types)}: expected 'global' or 'local' for each of "
                f"{self.n_layers} layers"
            )


def _is_finite(value: Any) -> bool:
    # Compared, not converted: an integer may be larger than any float.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST


def typed_field(name: str, value: Any, kind: Any) -> Any:
    """Return a cfg value as the plain Python type of its field; raises CheckpointError when it is of another."""
    base = next(part for part in get_args(kind) or (kind,) if part is not NoneType)
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or (base is bool and isinstance(value, bool)):
        return value
    if base is int and _is_finite(value) and value == int(value):
        return int(value)
    if base is float and _is_finite(value):
        return float(value)
    if base is str and isinstance(value, str):
        return value
    if base == tuple[str, ...] and isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
        return tuple(value)
    if base is torch.dtype:
        named = value if str(value).startswith("torch.") else f"torch.{value}"
        if str(named) in _DTYPES:
            return _DTYPES[str(named)]
        raise UnsupportedModelError(f"cfg sets dtype={short(value)}, expected one of {', '.join(_DTYPES)}")
    expected = {
        bool: "True or False",
        int: "a whole number",
        float: "a finite number",
        str: "a name",
        tuple[str, ...]: "a list of names",
    }[base]
    raise CheckpointError(f"cfg gives {name}={short(value)}: expected {expected}")

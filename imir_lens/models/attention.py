"""Attention with HookedTransformer's parameters and hooks."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import linear

from imir_lens.compat import HookPoint
from imir_lens.models.alibi import alibi_bias
from imir_lens.models.config import TransformerConfig
from imir_lens.models.rotary import Rotary
from imir_lens.models.soft_cap import soft_capped


class Attention(nn.Module):
    """One layer of heads: `Σ_h softmax(cap(q_h k_hᵀ / scale)) v_h W_O[h] + b_O`.

    Every hook stands where an edit acts on all that follows; `hook_attn_scores` holds the scores before the softmax,
    with −inf at the keys that a query cannot see.
    """

    W_K: Tensor
    W_V: Tensor
    b_K: Tensor
    b_V: Tensor

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.config = config
        heads, width, d_head = config.n_heads, config.d_model, config.d_head
        self.W_Q = _empty(config, heads, width, d_head)
        self.W_O = _empty(config, heads, d_head, width)
        self.b_Q = _zeros(config, heads, d_head)
        self.b_O = _zeros(config, width)
        self._add_key_value_parameters()
        self.rotary = Rotary(config, layer) if config.positional_embedding_type == "rotary" else None

        self.hook_q = HookPoint()  # [context position head d_head]
        self.hook_k = HookPoint()  # [context position kv_head d_head]
        self.hook_v = HookPoint()  # [context position kv_head d_head]
        if config.positional_embedding_type == "shortformer":
            self.hook_attn_input = HookPoint()  # HookedTransformer has it, and calls it nowhere
        if self.rotary is not None:
            self.hook_rot_q = HookPoint()  # [context position head d_head]
            self.hook_rot_k = HookPoint()  # [context position kv_head d_head]
        self.hook_attn_scores = HookPoint()  # [context head query key]
        self.hook_pattern = HookPoint()  # [context head query key]
        self.hook_z = HookPoint()  # [context position head d_head]
        self.hook_result = HookPoint()  # [context position head d_model]

    def _add_key_value_parameters(self) -> None:
        shape = (self.config.n_heads, self.config.d_model, self.config.d_head)
        self.W_K, self.W_V = _empty(self.config, *shape), _empty(self.config, *shape)
        self.b_K, self.b_V = _zeros(self.config, *shape[::2]), _zeros(self.config, *shape[::2])

    def _key_value_weights(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.W_K, self.b_K, self.W_V, self.b_V

    def forward(
        self,
        query_input: Float[Tensor, "context position *head d_model"],
        key_input: Float[Tensor, "context position *kv_head d_model"],
        value_input: Float[Tensor, "context position *kv_head d_model"],
        hidden: Bool[Tensor, "position position"] | None,
    ) -> Float[Tensor, "context position d_model"]:
        """Return what the layer adds to the residual stream.

        Args:
            query_input: what the queries read; with a head axis, one slice per head.
            key_input: what the keys read.
            value_input: what the values read.
            hidden: True where a query (row) must not see a key (column); None to see everything.
        """
        W_K, b_K, W_V, b_V = self._key_value_weights()
        q = self.hook_q(_project(query_input, self.W_Q, self.b_Q))
        k = self.hook_k(_project(key_input, W_K, b_K))
        v = self.hook_v(_project(value_input, W_V, b_V))
        if self.rotary is not None:
            q, k = self.hook_rot_q(self.rotary(q)), self.hook_rot_k(self.rotary(k))
        pattern = self._pattern(q, self._per_head(k), hidden)
        z = self.hook_z((pattern @ self._per_head(v).transpose(1, 2)).transpose(1, 2))
        if self.config.use_attn_result:
            result = self.hook_result(torch.einsum("cphd,hdm->cphm", z, self.W_O))
            return result.sum(2) + self.b_O
        return linear(z.flatten(2), self.W_O.flatten(0, 1).T, self.b_O)

    def _pattern(
        self,
        q: Float[Tensor, "context query head d_head"],
        k: Float[Tensor, "context key head d_head"],
        hidden: Bool[Tensor, "query key"] | None,
    ) -> Float[Tensor, "context head query key"]:
        """Return the attention patterns, after both of their hooks."""
        scale = self.config.score_scale
        # Dividing q touches fewer numbers than dividing the scores. It is the same to the last bit for a power of two
        # only, and HookedTransformer's logits are to be met exactly.
        on_queries = math.frexp(scale)[0] == 0.5
        scores = (q / scale if on_queries else q).transpose(1, 2) @ k.permute(0, 2, 3, 1)
        if not on_queries:
            scores = scores.div_(scale)
        scores = soft_capped(scores, self.config.attn_scores_soft_cap)
        if self.config.positional_embedding_type == "alibi":
            scores = (scores + alibi_bias(*scores.shape[1:3], device=scores.device)).to(scores.dtype)
        if hidden is not None:
            with torch.no_grad():  # the softmax gives these scores no gradient anyway: recording the fill costs a copy
                scores.masked_fill_(hidden, -torch.inf)
        pattern = self.hook_attn_scores(scores).softmax(-1)
        if self.hook_attn_scores.fwd_hooks:
            # A hook may have masked all keys of a query, e.g. of a padding position: it then attends to nothing.
            pattern = pattern.nan_to_num(0.0)
        elif self.hook_pattern.fwd_hooks:
            # The softmax needs its output for the gradient: a hook that edits in place gets its own copy.
            pattern = pattern.clone()
        return self.hook_pattern(pattern)

    def _per_head(self, x: Float[Tensor, "context key kv_head d_head"]) -> Float[Tensor, "context key head d_head"]:
        """Return grouped keys or values with one slice per head."""
        shared_by = self.config.n_heads // x.shape[2]
        return x if shared_by == 1 else x.repeat_interleave(shared_by, dim=2)


class GroupedAttention(Attention):
    """Attention whose heads share keys and values in groups: `_W_K` and `_W_V` hold one slice per group.

    `W_K`, `W_V`, `b_K` and `b_V` are the same weights with one slice per head.
    """

    def _add_key_value_parameters(self) -> None:
        shape = (self.config.n_kv_heads, self.config.d_model, self.config.d_head)
        self._W_K, self._W_V = _empty(self.config, *shape), _empty(self.config, *shape)
        self._b_K, self._b_V = _zeros(self.config, *shape[::2]), _zeros(self.config, *shape[::2])

    def _key_value_weights(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if self.config.ungroup_grouped_query_attention:
            return self.W_K, self.b_K, self.W_V, self.b_V
        return self._W_K, self._b_K, self._W_V, self._b_V

    def _expanded(self, grouped: Tensor) -> Tensor:
        return grouped.repeat_interleave(self.config.n_heads // self.config.n_kv_heads, dim=0)

    @property
    def W_K(self) -> Float[Tensor, "head d_model d_head"]:  # type: ignore[override]
        """Key weights of every head."""
        return self._expanded(self._W_K)

    @property
    def W_V(self) -> Float[Tensor, "head d_model d_head"]:  # type: ignore[override]
        """Value weights of every head."""
        return self._expanded(self._W_V)

    @property
    def b_K(self) -> Float[Tensor, "head d_head"]:  # type: ignore[override]
        """Key biases of every head."""
        return self._expanded(self._b_K)

    @property
    def b_V(self) -> Float[Tensor, "head d_head"]:  # type: ignore[override]
        """Value biases of every head."""
        return self._expanded(self._b_V)


def _project(
    x: Float[Tensor, "context position *head d_model"],
    weight: Float[Tensor, "out_head d_model d_head"],
    bias: Float[Tensor, "out_head d_head"],
) -> Float[Tensor, "context position out_head d_head"]:
    """Return `x W + b` per head; x has one slice per head, or one for all."""
    if x.ndim == 4:
        return torch.einsum("cphm,hmd->cphd", x, weight) + bias
    return linear(x, weight.transpose(1, 2).flatten(0, 1), bias.flatten()).unflatten(-1, bias.shape)


def _empty(config: TransformerConfig, *shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape, dtype=config.dtype))


def _zeros(config: TransformerConfig, *shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(shape, dtype=config.dtype))

"""One layer: attention, then (unless attention-only) an MLP, each behind a norm, both adding to the residual stream."""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from imir_lens.compat import HookPoint
from imir_lens.models.attention import Attention, GroupedAttention
from imir_lens.models.config import TransformerConfig
from imir_lens.models.gated_mlp import GatedMLP
from imir_lens.models.mlp import MLP
from imir_lens.models.norms import make_norm


class Block(nn.Module):
    """`mid = x + attn(ln1(x))`, `post = mid + mlp(ln2(mid))`; in parallel `post = x + attn(ln1(x)) + mlp(ln2(x))`.

    The input hooks fire when their switch in the config is on: `hook_attn_in` gives every head its own copy of the
    input, `hook_q_input`, `hook_k_input` and `hook_v_input` then split it by what is read from it. Shortformer
    positions are added to what queries and keys read, after the norm.
    """

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.config = config
        self.ln1 = make_norm(config.normalization_type, config.d_model, eps=config.eps, dtype=config.dtype)
        self.attn = (Attention if config.n_key_value_heads is None else GroupedAttention)(config, layer)
        if not config.attn_only:
            self.ln2 = make_norm(config.normalization_type, config.d_model, eps=config.eps, dtype=config.dtype)
            self.mlp = (GatedMLP if config.gated_mlp else MLP)(config)
            if not config.parallel_attn_mlp:
                self.hook_resid_mid = HookPoint()  # [context position d_model]
        self.hook_attn_in = HookPoint()  # [context position head d_model]
        self.hook_q_input = HookPoint()  # [context position head d_model]
        self.hook_k_input = HookPoint()  # [context position kv_head d_model]
        self.hook_v_input = HookPoint()  # [context position kv_head d_model]
        self.hook_mlp_in = HookPoint()  # [context position d_model]
        self.hook_attn_out = HookPoint()  # [context position d_model]
        self.hook_mlp_out = HookPoint()  # [context position d_model]
        self.hook_resid_pre = HookPoint()  # [context position d_model]
        self.hook_resid_post = HookPoint()  # [context position d_model]

    def forward(
        self,
        x: Float[Tensor, "context position d_model"],
        hidden: Bool[Tensor, "position position"] | None,
        shortformer: Float[Tensor, "context position d_model"] | None = None,
    ) -> Float[Tensor, "context position d_model"]:
        """Return the residual stream after this layer.

        Args:
            x: the residual stream before it.
            hidden: as in `Attention.forward`.
            shortformer: the position embeddings of a shortformer; None for other positions.
        """
        x = self.hook_resid_pre(x)
        query, key, value = self._attention_inputs(x)
        if shortformer is not None:
            query, key = (y + (shortformer.unsqueeze(2) if y.ndim == 4 else shortformer) for y in (query, key))
        mid = x + self.hook_attn_out(self.attn(query, key, value, hidden))
        if self.config.attn_only:
            return self.hook_resid_post(mid)
        if not self.config.parallel_attn_mlp:
            x = mid = self.hook_resid_mid(mid)
        mlp_in = self.hook_mlp_in(x.clone()) if self.config.use_hook_mlp_in else x
        return self.hook_resid_post(mid + self.hook_mlp_out(self.mlp(self.ln2(mlp_in))))

    def _attention_inputs(
        self, x: Float[Tensor, "context position d_model"]
    ) -> tuple[
        Float[Tensor, "context position *head d_model"],
        Float[Tensor, "context position *kv_head d_model"],
        Float[Tensor, "context position *kv_head d_model"],
    ]:
        """Return what queries, keys and values read, normalised."""
        heads = self.config.n_heads
        if self.config.use_attn_in:
            x = self.hook_attn_in(_copies(x, heads))
        if not self.config.use_split_qkv_input:
            x = self.ln1(x)  # once: the three inputs are one tensor
            return x, x, x
        kv_heads = heads if self.config.ungroup_grouped_query_attention else self.config.n_kv_heads
        hooks = (self.hook_q_input, heads), (self.hook_k_input, kv_heads), (self.hook_v_input, kv_heads)
        query, key, value = (self.ln1(hook(_copies(x, count))) for hook, count in hooks)
        return query, key, value


def _copies(
    x: Float[Tensor, "context position *head d_model"], count: int
) -> Float[Tensor, "context position count d_model"]:
    """Return one copy of x per head, each of its own, so that a hook may edit one in place."""
    return (x if x.ndim == 4 else x.unsqueeze(2).expand(-1, -1, count, -1)).clone()

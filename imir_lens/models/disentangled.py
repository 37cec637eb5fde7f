"""The disentangled transformer: attention whose residual stream keeps what every path wrote apart.

Token and position embeddings are fixed and live in separate spaces, each head has one merged matrix `W_KQ`, nothing is
divided by `sqrt(d_head)`, and values are passed on as they are. With `D_l` the width entering layer l and H heads::

    s_ij = x_i W_KQ x_jᵀ            A_h = softmax over j ≤ i, or over all j where attention is bidirectional
    x^{l+1} = [x^l, A_1 x^l, …, A_H x^l]        stream="concat": D_{l+1} = D_l (1 + H), D_0 = vocab + n_ctx
    x^{l+1} = x^l + Σ_h A_h x^l O_h             stream="add": one width, O_h fixed orthogonal
    logits  = x^L W_U

In the concatenated stream the content of path q starts at `start(q)`, and that of q·h, for a head h of layer l, at
`start(q) + D_l (1 + h)`. The additive stream uses the very same places when it is wide enough, O_h being a cyclic shift
by `D_l (1 + h)`; when it is narrower, O_h is a random orthogonal matrix and the contents overlap.
"""

from collections.abc import Mapping
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from imir_lens.attention_form import AttentionForm
from imir_lens.compat import ActivationCache, HookedRootModule, HookPoint
from imir_lens.errors import CheckpointError, OptionError, did_you_mean
from imir_lens.ids import Path
from imir_lens.models.disentangled_config import DisentangledConfig
from imir_lens.models.state import check_weights
from imir_lens.paths import PathTable
from imir_lens.weights import CircuitWeights

__all__ = ["DisentangledAttention", "DisentangledConfig", "DisentangledTransformer"]

_SOURCES = ("pos", "tok")


class _Embedding(nn.Module):
    """Fixed embeddings: a table whose rows are the identity's, centred if asked, at a place of their own."""

    W_E: Tensor
    W_pos: Tensor

    def __init__(self, name: str, size: int, start: int, width: int, *, centred: bool) -> None:
        super().__init__()
        table = torch.zeros(size, width)
        table[:, start : start + size] = torch.eye(size) - (1 / size if centred else 0)
        self.register_buffer(name, table)


class DisentangledAttention(nn.Module):
    """All heads of one layer; see the module's formula."""

    W_O: Tensor  # in the additive stream only

    def __init__(self, config: DisentangledConfig, layer: int, generator: torch.Generator | None) -> None:
        super().__init__()
        width = config.width(layer)
        start = torch.randn(config.n_heads, width, width, generator=generator) * config.init_std
        self.W_KQ = nn.Parameter(start)
        self.concat, self.causal = config.stream == "concat", config.attention_dir == "causal"
        if not self.concat:
            self.register_buffer("W_O", _write_maps(config, layer, generator))
        self.hook_q, self.hook_k, self.hook_v = HookPoint(), HookPoint(), HookPoint()
        self.hook_attn_scores, self.hook_pattern, self.hook_z = HookPoint(), HookPoint(), HookPoint()

    def forward(self, x: Float[Tensor, "context position width"]) -> Float[Tensor, "context position written"]:
        """Return what the layer writes: H·width numbers beside the stream, or d_model numbers into it."""
        shared = x.unsqueeze(2).expand(-1, -1, len(self.W_KQ), -1)
        q = self.hook_q(torch.einsum("cid,hde->cihe", x, self.W_KQ))
        k, v = self.hook_k(shared), self.hook_v(shared)
        scores = torch.einsum("cihe,cjhe->chij", q, k)
        if self.causal:
            future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(future, -torch.inf)
        pattern = self.hook_pattern(self.hook_attn_scores(scores).softmax(dim=-1))
        z = self.hook_z(torch.einsum("chij,cjhe->cihe", pattern, v))
        return z.flatten(2) if self.concat else torch.einsum("cihe,hed->cid", z, self.W_O)


class _Block(nn.Module):
    def __init__(self, config: DisentangledConfig, layer: int, generator: torch.Generator | None) -> None:
        super().__init__()
        self.attn = DisentangledAttention(config, layer, generator)
        self.hook_resid_pre, self.hook_attn_out, self.hook_resid_post = HookPoint(), HookPoint(), HookPoint()

    def forward(self, x: Float[Tensor, "context position width"]) -> Float[Tensor, "context position wider"]:
        x = self.hook_resid_pre(x)
        written = self.hook_attn_out(self.attn(x))
        return self.hook_resid_post(torch.cat([x, written], dim=-1) if self.attn.concat else x + written)


class _Unembed(nn.Module):
    def __init__(self, config: DisentangledConfig, generator: torch.Generator | None) -> None:
        super().__init__()
        start = torch.randn(config.d_model, config.d_vocab, generator=generator) * config.init_std
        self.W_U = nn.Parameter(start)


class DisentangledTransformer(HookedRootModule):
    """See the module. Hooks carry TransformerLens' names; `hook_q · hook_k` is the score (the scale is 1)."""

    def __init__(self, config: DisentangledConfig, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.cfg: Any = config
        centred = config.embedding == "centred"
        self.embed = _Embedding("W_E", config.d_vocab, 0, config.width(0), centred=centred)
        self.pos_embed = _Embedding("W_pos", config.n_ctx, config.d_vocab, config.width(0), centred=centred)
        self.hook_embed, self.hook_pos_embed = HookPoint(), HookPoint()
        self.blocks = nn.ModuleList(_Block(config, layer, generator) for layer in range(config.n_layers))
        self.unembed = _Unembed(config, generator)
        self.setup()

    def forward(self, tokens: Int[Tensor, "context position"]) -> Float[Tensor, "context position vocab"]:
        """Return the logits.

        Raises:
            OptionError: when the contexts are longer than n_ctx.
        """
        if tokens.shape[1] > self.cfg.n_ctx:
            raise OptionError(f"contexts of {tokens.shape[1]} tokens do not fit a model with n_ctx={self.cfg.n_ctx}")
        embedded = self.hook_embed(self.embed.W_E[tokens])
        positions = self.pos_embed.W_pos[: tokens.shape[1]].expand(len(tokens), -1, -1)
        x = embedded + self.hook_pos_embed(positions)
        for block in self.blocks:
            x = block(x)
        return x @ self.unembed.W_U

    def run_with_cache(self, *args: Any, **kwargs: Any) -> tuple[Tensor, ActivationCache]:
        """Return the logits and an `ActivationCache`; arguments as in TransformerLens."""
        logits, cache = super().run_with_cache(*args, **kwargs)
        return logits, ActivationCache(dict(cache), self)

    def attention(self, layer: int) -> DisentangledAttention:
        """Return one layer's heads."""
        return cast(_Block, self.blocks[layer]).attn

    def paths(self, layer: int) -> tuple[Path, ...]:
        """Paths entering a layer, `(1 + H)^layer` of them; in an orthogonal stream, in the order of their places."""
        return PathTable.full(layer, self.cfg.n_heads).paths

    def contents(self, layer: int, source: str) -> Float[Tensor, "path index width"]:
        """Where each path puts each token ("tok") or position ("pos"): `E V_p` in the stream entering a layer.

        Raises:
            OptionError: for another source.
        """
        if source not in _SOURCES:
            raise OptionError(f"unknown source {source!r}; {did_you_mean(source, _SOURCES)}")
        table = self.embed.W_E if source == "tok" else self.pos_embed.W_pos
        contents = table.unsqueeze(0)
        for below in range(layer):
            maps = self._writes(below)
            pad = self.cfg.width(below + 1) - contents.shape[-1]
            written = torch.einsum("pvd,hde->hpve", contents, maps).flatten(0, 1)
            contents = torch.cat([nn.functional.pad(contents, (0, pad)), written])
        return contents

    def circuit_weights(self) -> CircuitWeights:
        """Return the same model in TransformerLens' matrices, padded with zeros to the final width; scale 1.

        They are on the model's device; half precision becomes float32.

        `W_Q` is W_KQ, `W_K` and `W_V` the identity on the stream entering the layer, `W_O` places what a head copies.
        """
        cfg, like = self.cfg, self.unembed.W_U.detach()
        like = like.to(torch.promote_types(like.dtype, torch.float32))
        layers, heads, d_model, d_head = cfg.n_layers, cfg.n_heads, cfg.d_model, cfg.d_head
        identity = torch.eye(d_model, d_head).to(like).expand(layers, heads, -1, -1)
        w_q = like.new_zeros(layers, heads, d_model, d_head)
        w_o = like.new_zeros(layers, heads, d_head, d_model)
        for layer in range(layers):
            width = cfg.width(layer)
            w_q[layer, :, :width, :width] = self.attention(layer).W_KQ.detach()
            w_o[layer, :, :width, : cfg.width(layer + 1)] = self._writes(layer)
        bias = like.new_zeros(layers, heads, d_head)
        pad = (0, d_model - cfg.width(0))
        return CircuitWeights(
            W_E=nn.functional.pad(self.embed.W_E.to(like), pad),
            W_pos=nn.functional.pad(self.pos_embed.W_pos.to(like), pad),
            W_Q=w_q,
            W_K=identity,
            W_V=identity,
            W_O=w_o,
            b_Q=bias,
            b_K=bias,
            b_V=bias,
            b_O=like.new_zeros(layers, d_model),
            W_U=like,
            b_U=like.new_zeros(cfg.d_vocab),
            scale=1.0,
            form=AttentionForm(bidirectional=cfg.attention_dir == "bidirectional"),
        )

    def _writes(self, layer: int) -> Float[Tensor, "head width wider"]:
        """The fixed maps from the stream entering a layer to where its heads write."""
        attn = self.attention(layer)
        return _placements(self.cfg, layer).to(self.embed.W_E) if attn.concat else attn.W_O

    def load_checked_state(self, state_dict: Mapping[str, Any]) -> None:
        """Load a state dict of the same config, fixed tables included.

        Raises:
            CheckpointError: when a weight is missing, unexpected, of another shape, or not finite, or the embeddings
                are not those of the config. The model is then unchanged.
        """
        own = self.state_dict()
        check_weights(state_dict, own)
        for name in ("embed.W_E", "pos_embed.W_pos"):
            table = state_dict[name]
            if not torch.allclose(table, own[name].to(table), atol=1e-3):
                raise CheckpointError(f"{name} contradicts its cfg: check embedding={self.cfg.embedding!r}")
        self.load_state_dict(dict(state_dict))


def _placements(config: DisentangledConfig, layer: int) -> Float[Tensor, "head width wider"]:
    width, heads = config.width(layer), config.n_heads
    maps = torch.zeros(heads, width, width * (1 + heads))
    for head in range(heads):
        maps[head, :, width * (1 + head) : width * (2 + head)] = torch.eye(width)
    return maps


def _write_maps(
    config: DisentangledConfig, layer: int, generator: torch.Generator | None
) -> Float[Tensor, "head d_model d_model"]:
    """Cyclic shifts to places of their own where the stream is wide enough, random orthogonal matrices elsewhere."""
    if config.orthogonal:
        identity = torch.eye(config.d_model)
        shifts = [config.apart(layer) * (1 + head) for head in range(config.n_heads)]
        return torch.stack([identity.roll(shift, dims=1) for shift in shifts])
    return torch.linalg.qr(torch.randn(config.n_heads, config.d_model, config.d_model, generator=generator)).Q

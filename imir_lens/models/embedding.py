"""Into the residual stream and out of it: token embedding, learned positions, unembedding."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

from imir_lens.compat import HookPoint
from imir_lens.models.config import TransformerConfig


class Embed(nn.Module):
    """Token embedding: row `token` of W_E."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.W_E = nn.Parameter(torch.empty(config.d_vocab, config.d_model, dtype=config.dtype))

    def forward(self, tokens: Int[Tensor, "context position"]) -> Float[Tensor, "context position d_model"]:
        """Return the embedding of each token."""
        return embedding(tokens, self.W_E)


class PosEmbed(nn.Module):
    """Learned positions: row `position` of W_pos."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.W_pos = nn.Parameter(torch.empty(config.n_ctx, config.d_model, dtype=config.dtype))

    def forward(self, tokens: Int[Tensor, "context position"]) -> Float[Tensor, "context position d_model"]:
        """Return the embedding of each position, one copy per context so that a hook may edit one in place."""
        contexts, length = tokens.shape
        return self.W_pos[:length].expand(contexts, -1, -1).clone()


class Unembed(nn.Module):
    """Logits: `x W_U + b_U`."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.W_U = nn.Parameter(torch.empty(config.d_model, config.d_vocab_out, dtype=config.dtype))
        self.b_U = nn.Parameter(torch.zeros(config.d_vocab_out, dtype=config.dtype))
        self.hook_in = HookPoint()  # [context position d_model]
        self.hook_out = HookPoint()  # [context position d_vocab_out]

    def forward(self, x: Float[Tensor, "context position d_model"]) -> Float[Tensor, "context position d_vocab_out"]:
        """Return the logits."""
        return self.hook_out(linear(self.hook_in(x), self.W_U.T, self.b_U))

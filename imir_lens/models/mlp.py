"""The MLP of HookedTransformer, with its activations and hooks."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, relu, silu

from imir_lens.compat import HookPoint
from imir_lens.models.config import TransformerConfig
from imir_lens.models.norms import Norm


def gelu_new(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return GPT-2's tanh approximation of gelu."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x.pow(3.0))))


def gelu_fast(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return the same approximation with √(2/π) rounded to ten digits, as HookedTransformer has it."""
    return 0.5 * x * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x)))


def gelu_pytorch_tanh(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return the same approximation as torch computes it."""
    return gelu(x, approximate="tanh")


def solu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return x · softmax(x) over the last axis."""
    return x * x.softmax(-1)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": relu,
    "gelu": gelu,
    "silu": silu,
    "gelu_new": gelu_new,
    "gelu_fast": gelu_fast,
    "gelu_pytorch_tanh": gelu_pytorch_tanh,
    "solu_ln": solu,
}


class MLP(nn.Module):
    """`act(x W_in + b_in) W_out + b_out`; `solu_ln` normalises the activations before they are read out."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        width = config.d_mlp or 4 * config.d_model
        self.act_fn = ACTIVATIONS[config.act_fn or ""]
        self.W_in = nn.Parameter(torch.empty(config.d_model, width, dtype=config.dtype))
        self.b_in = nn.Parameter(torch.zeros(width, dtype=config.dtype))
        self.W_out = nn.Parameter(torch.empty(width, config.d_model, dtype=config.dtype))
        self.b_out = nn.Parameter(torch.zeros(config.d_model, dtype=config.dtype))
        self.hook_pre = HookPoint()  # [context position d_mlp]
        self.hook_post = HookPoint()  # [context position d_mlp]
        self.ln: Norm | None = None
        if config.act_fn == "solu_ln":
            self.hook_mid = HookPoint()  # [context position d_mlp]
            # HookedTransformer's rule: weights only in an LN model, whatever the other norms are.
            kind = "LN" if config.normalization_type == "LN" else "LNPre"
            self.ln = Norm(kind, width, eps=config.eps, dtype=config.dtype)

    def forward(self, x: Float[Tensor, "context position d_model"]) -> Float[Tensor, "context position d_model"]:
        """Return what the MLP adds to the residual stream."""
        activations = self.act_fn(self.hook_pre(linear(x, self.W_in.T, self.b_in)))
        if self.ln is not None:
            activations = self.ln(self.hook_mid(activations))
        return linear(self.hook_post(activations), self.W_out.T, self.b_out)

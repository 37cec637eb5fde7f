"""The gated MLP of HookedTransformer: one projection opens or closes the other."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear

from imir_lens.compat import HookPoint
from imir_lens.models.config import TransformerConfig
from imir_lens.models.mlp import MLP


class GatedMLP(MLP):
    """`(act(x W_gate) ⊙ (x W_in) + b_in) W_out + b_out`: the bias comes after the product.

    With `solu_ln` HookedTransformer reads neither W_in nor b_in: `norm(act(x W_gate)) W_out + b_out`. So does this.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.W_gate = nn.Parameter(torch.empty(self.W_in.shape, dtype=config.dtype))
        self.hook_pre_linear = HookPoint()  # [context position d_mlp]

    def forward(self, x: Float[Tensor, "context position d_model"]) -> Float[Tensor, "context position d_model"]:
        """Return what the MLP adds to the residual stream."""
        activations = self.act_fn(self.hook_pre(linear(x, self.W_gate.T)))
        if self.ln is not None:
            activations = self.ln(self.hook_mid(activations))
        else:
            activations = activations * self.hook_pre_linear(linear(x, self.W_in.T)) + self.b_in
        return linear(self.hook_post(activations), self.W_out.T, self.b_out)

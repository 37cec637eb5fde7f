"""All layers' weights at once, under HookedTransformer's property names."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


class StackedWeights:
    """Weight properties of a model with `embed`, `pos_embed`, `blocks` and `unembed`; grouped heads are expanded."""

    def _stacked(self, module: str, name: str) -> Tensor:
        return torch.stack([getattr(getattr(block, module), name) for block in self.blocks])  # type: ignore[attr-defined]

    @property
    def W_E(self) -> Float[Tensor, "d_vocab d_model"]:
        """Token embedding."""
        return self.embed.W_E  # type: ignore[attr-defined]

    @property
    def W_pos(self) -> Float[Tensor, "n_ctx d_model"]:
        """Position embedding, which ALiBi models do not read; no such attribute with rotary positions."""
        return self.pos_embed.W_pos  # type: ignore[attr-defined]

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab_out"]:
        """Unembedding."""
        return self.unembed.W_U  # type: ignore[attr-defined]

    @property
    def b_U(self) -> Float[Tensor, " d_vocab_out"]:
        """Unembedding bias."""
        return self.unembed.b_U  # type: ignore[attr-defined]

    @property
    def W_Q(self) -> Float[Tensor, "layer head d_model d_head"]:
        """Query weights."""
        return self._stacked("attn", "W_Q")

    @property
    def W_K(self) -> Float[Tensor, "layer head d_model d_head"]:
        """Key weights."""
        return self._stacked("attn", "W_K")

    @property
    def W_V(self) -> Float[Tensor, "layer head d_model d_head"]:
        """Value weights."""
        return self._stacked("attn", "W_V")

    @property
    def W_O(self) -> Float[Tensor, "layer head d_head d_model"]:
        """Output weights."""
        return self._stacked("attn", "W_O")

    @property
    def b_Q(self) -> Float[Tensor, "layer head d_head"]:
        """Query biases."""
        return self._stacked("attn", "b_Q")

    @property
    def b_K(self) -> Float[Tensor, "layer head d_head"]:
        """Key biases."""
        return self._stacked("attn", "b_K")

    @property
    def b_V(self) -> Float[Tensor, "layer head d_head"]:
        """Value biases."""
        return self._stacked("attn", "b_V")

    @property
    def b_O(self) -> Float[Tensor, "layer d_model"]:
        """Output biases."""
        return self._stacked("attn", "b_O")

    @property
    def W_in(self) -> Float[Tensor, "layer d_model d_mlp"]:
        """MLP input weights; no such attribute in an attention-only model."""
        return self._stacked("mlp", "W_in")

    @property
    def W_gate(self) -> Float[Tensor, "layer d_model d_mlp"] | None:
        """Gate weights of gated MLPs; None for other MLPs."""
        gated = self.cfg.gated_mlp  # type: ignore[attr-defined]
        return self._stacked("mlp", "W_gate") if gated else None

    @property
    def b_in(self) -> Float[Tensor, "layer d_mlp"]:
        """MLP input biases."""
        return self._stacked("mlp", "b_in")

    @property
    def W_out(self) -> Float[Tensor, "layer d_mlp d_model"]:
        """MLP output weights."""
        return self._stacked("mlp", "W_out")

    @property
    def b_out(self) -> Float[Tensor, "layer d_model"]:
        """MLP output biases."""
        return self._stacked("mlp", "b_out")

    def accumulated_bias(
        self, layer: int, mlp_input: bool = False, include_mlp_biases: bool = True
    ) -> Float[Tensor, " d_model"]:
        """Return the sum of the output biases that the input of a layer holds.

        Args:
            layer: the layer; n_layers for the final residual stream.
            mlp_input: up to the input of the layer's MLP rather than of its attention.
            include_mlp_biases: with the MLPs' biases.
        """
        total = self.b_O[: layer + mlp_input].sum(0)
        with_mlp = include_mlp_biases and hasattr(self, "b_out")
        return total + self.b_out[:layer].sum(0) if with_mlp else total

    def tokens_to_residual_directions(self, tokens: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape d_model"]:
        """Return the direction in the residual stream that raises each token's logit: its column of W_U."""
        return self.W_U.T[tokens]

"""The home of HookedTransformer-format checkpoints: its parameters, its hooks, its numbers."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from imir_lens.compat import ActivationCache, HookedRootModule, HookPoint
from imir_lens.errors import OptionError
from imir_lens.models.attention import Attention
from imir_lens.models.block import Block
from imir_lens.models.config import TransformerConfig
from imir_lens.models.embedding import Embed, PosEmbed, Unembed
from imir_lens.models.limits import check_layers, check_numbers
from imir_lens.models.local import hidden_outside
from imir_lens.models.norms import make_norm
from imir_lens.models.soft_cap import soft_capped
from imir_lens.models.stacked import StackedWeights
from imir_lens.models.state import check_buffers, check_weights, split_buffers


class ImirTransformer(StackedWeights, HookedRootModule):
    """A decoder with HookedTransformer's parameter names, hook names and logits, on any TransformerLens.

    Args:
        config: the shape of the model.
        generator: where fresh weights come from: all `W_*` from N(0, initializer_range²), biases zero, norms one.
            Without one they are drawn with seed 0. No global random state is read or changed.

    Under `torch.device("meta")` the model has shapes and no numbers.

    Raises:
        CheckpointError: when the config asks for more layers or numbers than `models.limits` allows.
    """

    future: Tensor

    def __init__(self, config: TransformerConfig, *, generator: torch.Generator | None = None) -> None:
        check_layers(config.n_layers)
        check_numbers(config.n_numbers)
        super().__init__()
        self._config = config
        self.embed = Embed(config)
        self.hook_embed = HookPoint()  # [context position d_model]
        if config.has_position_embedding:
            self.pos_embed = PosEmbed(config)
            self.hook_pos_embed = HookPoint()  # [context position d_model]
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.n_layers))
        if config.normalization_type is not None:
            kind = config.normalization_type.replace("LN", "RMS") if config.final_rms else config.normalization_type
            self.ln_final = make_norm(kind, config.d_model, eps=config.eps, dtype=config.dtype)
        self.unembed = Unembed(config)
        seen = torch.ones(config.n_ctx, config.n_ctx, dtype=torch.bool).tril()
        self.register_buffer("future", ~seen, persistent=False)
        if not self.embed.W_E.is_meta:
            self._draw_weights(torch.Generator().manual_seed(0) if generator is None else generator)
        self.setup()

    @torch.no_grad()
    def _draw_weights(self, generator: torch.Generator) -> None:
        for name, parameter in self.named_parameters():
            if "W_" in name:
                fresh = torch.empty(parameter.shape, dtype=parameter.dtype, device=generator.device)
                parameter.copy_(fresh.normal_(std=self._config.initializer_range, generator=generator))

    @property
    def cfg(self) -> TransformerConfig:
        """The configuration, with the dtype and device the model has now."""
        return replace(self._config, dtype=self.embed.W_E.dtype, device=str(self.embed.W_E.device))

    def forward(self, tokens: Int[Tensor, "context position"]) -> Float[Tensor, "context position d_vocab_out"]:
        """Return the logits at every position.

        Args:
            tokens: ids below d_vocab, at most n_ctx in a context.

        Raises:
            OptionError: when the contexts are longer than n_ctx.
        """
        length = tokens.shape[1]
        if length > self._config.n_ctx:
            raise OptionError(f"contexts of {length} tokens are longer than the model's n_ctx={self._config.n_ctx}")
        x = self.hook_embed(self.embed(tokens))
        shortformer = None
        if self._config.positional_embedding_type == "standard":
            x = x + self.hook_pos_embed(self.pos_embed(tokens))
        elif self._config.positional_embedding_type == "shortformer":
            shortformer = self.hook_pos_embed(self.pos_embed(tokens))
        future = self.future[:length, :length] if self._config.attention_dir == "causal" else None
        local = future
        if future is not None and self._config.use_local_attn and self._config.window_size is not None:
            local = hidden_outside(future, self._config.window_size)
        for layer, block in enumerate(self.blocks):
            x = block(x, local if self._config.is_local(layer) else future, shortformer)
        if self._config.normalization_type is not None:
            x = self.ln_final(x)
        return soft_capped(self.unembed(x), self._config.output_logits_soft_cap)

    def run_with_cache(
        self, *model_args: Any, return_cache_object: bool = True, remove_batch_dim: bool = False, **kwargs: Any
    ) -> tuple[Tensor, ActivationCache | dict[str, Tensor]]:
        """Run the model and keep its activations, as HookedTransformer does.

        Args:
            model_args: the tokens.
            return_cache_object: give an ActivationCache (`cache["pattern", 0]`, `cache.decompose_resid()`, …) rather
                than a dict of hook names.
            remove_batch_dim: drop the context axis of a single context.
            kwargs: `names_filter` and the other options of HookedRootModule.

        Returns:
            the logits, and the cache.
        """
        logits, cache = super().run_with_cache(*model_args, remove_batch_dim=remove_batch_dim, **kwargs)
        if return_cache_object:
            cache = ActivationCache(cache, self, has_batch_dim=not remove_batch_dim)
        return logits, cache

    def load_transformer_lens_state(self, state_dict: Mapping[str, Any]) -> None:
        """Load the state dict of a HookedTransformer of any TransformerLens version.

        The tables among the weights (`attn.mask`, `attn.IGNORE`, `attn.rotary_*`) are compared with the config, then
        dropped.

        Raises:
            CheckpointError: when a weight is missing, unexpected, of another shape, or not finite, or when the tables
                contradict the config. The model is then unchanged.
        """
        weights, buffers = split_buffers(state_dict)
        parameters = dict(self.named_parameters())
        check_weights(weights, parameters)
        check_buffers(buffers, self._config)
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(weights[name])

    def set_use_attn_result(self, use_attn_result: bool) -> None:
        """Switch `hook_result`, what each head adds to the residual stream."""
        self._reconfigure(use_attn_result=use_attn_result)

    def set_use_split_qkv_input(self, use_split_qkv_input: bool) -> None:
        """Switch `hook_q_input`, `hook_k_input` and `hook_v_input`, what each head reads."""
        self._reconfigure(use_split_qkv_input=use_split_qkv_input)

    def set_use_attn_in(self, use_attn_in: bool) -> None:
        """Switch `hook_attn_in`, what each head reads, for queries, keys and values at once.

        Raises:
            OptionError: in a model with grouped keys.
        """
        if use_attn_in and self._config.n_key_value_heads is not None:
            raise OptionError("hook_attn_in needs ungrouped keys; use set_use_split_qkv_input in this model")
        self._reconfigure(use_attn_in=use_attn_in)

    def set_use_hook_mlp_in(self, use_hook_mlp_in: bool) -> None:
        """Switch `hook_mlp_in`, what the MLP reads.

        Raises:
            OptionError: in an attention-only model.
        """
        if self._config.attn_only:
            raise OptionError("hook_mlp_in needs an MLP; this model is attention-only")
        self._reconfigure(use_hook_mlp_in=use_hook_mlp_in)

    def set_ungroup_grouped_query_attention(self, ungroup_grouped_query_attention: bool) -> None:
        """Switch `hook_k` and `hook_v` of grouped heads to one slice per head."""
        self._reconfigure(ungroup_grouped_query_attention=ungroup_grouped_query_attention)

    def _reconfigure(self, **switches: bool) -> None:
        self._config = replace(self._config, **switches)  # type: ignore[arg-type]
        for module in self.modules():
            if isinstance(module, Block | Attention):
                module.config = self._config

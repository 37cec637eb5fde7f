"""Small models with every weight random, and the state dicts of saved ones."""

from dataclasses import replace

import torch

from imir_lens.models.config import TransformerConfig
from imir_lens.models.transformer import ImirTransformer

PLAIN = TransformerConfig(
    d_model=16, d_head=8, n_heads=2, n_layers=2, n_ctx=12, d_vocab=10, attn_only=True, normalization_type=None
)
FULL = replace(PLAIN, attn_only=False, normalization_type="LN", act_fn="solu_ln", initializer_range=0.5)
GROUPED = replace(FULL, n_heads=4, n_key_value_heads=2, positional_embedding_type="rotary", rotary_dim=6)
GATED = replace(FULL, gated_mlp=True, act_fn="silu", normalization_type="RMS")
CAPPED = replace(PLAIN, attn_scores_soft_cap=0.5, output_logits_soft_cap=2.0)
ALIBI = replace(FULL, positional_embedding_type="alibi", n_heads=3, act_fn="gelu")
SHORTFORMER = replace(FULL, positional_embedding_type="shortformer", act_fn="gelu")
LOCAL = replace(PLAIN, use_local_attn=True, attn_types=("global", "local"), window_size=3)
CONFIGS = {
    "local": LOCAL,
    "shortformer": SHORTFORMER,
    "alibi": ALIBI,
    "plain": PLAIN,
    "full": FULL,
    "grouped": GROUPED,
    "gated": GATED,
    "parallel": replace(FULL, parallel_attn_mlp=True),
    "capped": CAPPED,
}


def build(config: TransformerConfig, seed: int = 1) -> ImirTransformer:
    """A model whose biases and norm weights are random too, so that each of them matters."""
    generator = torch.Generator().manual_seed(seed)
    model = ImirTransformer(config, generator=generator)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def tokens(contexts: int = 3, length: int = 7) -> torch.Tensor:
    return torch.randint(10, (contexts, length), generator=torch.Generator().manual_seed(2))


def load(config: TransformerConfig, state: dict) -> ImirTransformer:
    model = ImirTransformer(config)
    model.load_transformer_lens_state(state)
    return model

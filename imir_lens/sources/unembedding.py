"""The unembedding of a Hugging Face model, which may be its embedding."""

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.errors import CheckpointError
from imir_lens.sources.source_weights import SourceWeights


def unembedding(
    weights: SourceWeights, names: tuple[str, ...], embedding: Float[Tensor, "vocab d_model"], *, tied: bool
) -> Float[Tensor, "vocab d_model"]:
    """Return the rows that logits are read with: the embedding itself when the two are tied.

    Args:
        weights: the model's weights.
        names: what the unembedding may be called; the first that is there counts.
        embedding: the token embedding.
        tied: what the config says.

    Raises:
        CheckpointError: when there is none although it is not tied, or when the two are tied and yet differ.
    """
    name = next((name for name in names if name in weights), names[0])
    if not tied:
        return weights.take(name, *embedding.shape)
    if name in weights and not torch.equal(weights.take(name, *embedding.shape), embedding):
        raise CheckpointError(
            f"weight {name!r} differs from the embedding, but the config says that the two are tied: correct "
            "tie_word_embeddings"
        )
    return embedding

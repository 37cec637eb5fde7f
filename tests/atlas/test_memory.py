"""No matrix of vocabulary × vocabulary is ever held."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from imir_lens.atlas.pipeline import heads_atlas
from imir_lens.atlas.scores import weight_scores
from imir_lens.lens_model import open_model
from imir_lens.models.config import TransformerConfig
from imir_lens.models.transformer import ImirTransformer

VOCAB = 12_000
CONFIG = TransformerConfig(
    d_model=32, d_head=8, n_heads=4, n_layers=3, n_ctx=32, d_vocab=VOCAB, normalization_type="LN", act_fn="gelu"
)


class Largest(TorchDispatchMode):
    """Notes the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        self.numbers = max(self.numbers, *sizes, 0) if sizes else self.numbers
        return out


def test_the_largest_tensor_of_the_weights_alone_is_a_block_of_the_vocabulary():
    lens = open_model(ImirTransformer(CONFIG).eval())
    with Largest() as largest:
        weight_scores(lens)
    assert largest.numbers <= max(4096 * 4 * CONFIG.d_model, VOCAB * CONFIG.d_model)
    assert largest.numbers < VOCAB**2 / 100


def test_with_data_and_removals_it_is_no_larger_than_what_the_model_itself_makes():
    lens = open_model(ImirTransformer(CONFIG).eval())
    contexts, length = 2, 32
    with Largest() as largest:
        heads_atlas(lens, data=True, check=2, contexts=contexts, length=length // 2)
    assert largest.numbers <= contexts * length * VOCAB  # logits
    assert largest.numbers < VOCAB**2 / 100


def test_a_matrix_of_the_vocabulary_would_be_noticed():
    lens = open_model(ImirTransformer(CONFIG).eval())
    with Largest() as largest:
        _ = lens.weights.W_E[:, :1] @ lens.weights.W_E[:, :1].T
    assert largest.numbers == VOCAB**2

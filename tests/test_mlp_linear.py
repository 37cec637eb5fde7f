"""MLPs as sums of parts: the mean Jacobian against automatic differentiation, and parts that explain what is linear."""

from typing import Any

import pytest
import torch
from torch import Tensor

from imir_lens.mlp_linear import mean_jacobian, split_mlp
from imir_lens.models.block import Block
from imir_lens.models.config import TransformerConfig

WIDTH, VOCAB, POSITIONS = 6, 5, 4


def block_of(generator: torch.Generator, **changes: Any) -> Block:
    shape = {"d_model": WIDTH, "d_head": 3, "n_layers": 1, "n_ctx": POSITIONS, "d_vocab": VOCAB, "d_mlp": 10}
    block = Block(TransformerConfig.from_dict({**shape, "dtype": "float64", "normalization_type": None, **changes}), 0)
    for parameter in block.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator))
    return block.eval()


def by_differentiation(block: Block, rows: Tensor) -> Tensor:
    """`∂ out_k / ∂ x_m`, row by row; [m, k]."""

    def one(x: Tensor) -> Tensor:
        return block.mlp(block.ln2(x.view(1, 1, -1))).flatten()

    return torch.stack([torch.autograd.functional.jacobian(one, row).T for row in rows]).mean(0)


@pytest.mark.parametrize("norm", [None, "LN", "LNPre", "RMS", "RMSPre"])
@pytest.mark.parametrize(
    "mlp",
    [
        {"act_fn": "relu"},
        {"act_fn": "gelu"},
        {"act_fn": "gelu_new"},
        {"act_fn": "silu", "gated_mlp": True},
        {"act_fn": "solu_ln"},
    ],
    ids=["relu", "gelu", "gelu_new", "gated", "solu"],
)
def test_the_mean_jacobian_is_the_mean_of_the_jacobians(
    norm: str | None, mlp: dict[str, Any], generator: torch.Generator
) -> None:
    block = block_of(generator, normalization_type=norm, **mlp)
    rows = torch.randn(9, WIDTH, generator=generator, dtype=torch.float64)
    expected = by_differentiation(block, rows)
    assert expected.abs().max() > 0.1
    with torch.no_grad():
        torch.testing.assert_close(mean_jacobian(block, rows), expected)
    assert not torch.allclose(mean_jacobian(block, rows[:3]), expected, atol=1e-2)


def _rows(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    tokens, positions = torch.randint(VOCAB, (40,), generator=generator), torch.arange(40) % POSITIONS
    embedding = torch.randn(VOCAB, WIDTH, generator=generator, dtype=torch.float64)
    places = torch.randn(POSITIONS, WIDTH, generator=generator, dtype=torch.float64)
    brought = torch.randn(40, WIDTH, generator=generator, dtype=torch.float64)
    return tokens, positions, embedding, places, brought


@torch.no_grad()
def test_a_linear_mlp_is_explained_by_its_parts(generator: torch.Generator) -> None:
    block = block_of(generator, act_fn="relu")
    block.mlp.b_in.data.fill_(1e3)  # far above zero, where relu is the identity
    tokens, positions, embedding, places, brought = _rows(generator)
    entering = embedding[tokens] + places[positions] + brought
    parts = split_mlp(block, entering, brought, tokens, positions, embedding, n_positions=POSITIONS)
    assert parts.explained == pytest.approx(1, abs=1e-9)
    torch.testing.assert_close(parts.carry, block.mlp.W_in @ block.mlp.W_out)
    added = block.mlp(entering.unsqueeze(0)).squeeze(0)
    assert parts.positions is not None
    rebuilt = parts.tokens[tokens] + parts.positions[positions] + brought @ parts.carry
    torch.testing.assert_close(rebuilt, added)


@torch.no_grad()
def test_what_is_not_linear_is_not_explained(generator: torch.Generator) -> None:
    block = block_of(generator, act_fn="relu")
    tokens, positions, embedding, _, brought = _rows(generator)
    entering = embedding[tokens] + 3 * brought
    parts = split_mlp(block, entering, 3 * brought, tokens, positions, embedding, n_positions=0)
    assert parts.positions is None
    assert parts.explained < 0.9
    # With nothing but tokens an MLP is a function of the token, however bent.
    alone = split_mlp(block, embedding[tokens], 0 * brought, tokens, positions, embedding, n_positions=0)
    assert alone.explained == pytest.approx(1, abs=1e-9)
    torch.testing.assert_close(alone.tokens, block.mlp(embedding.unsqueeze(0)).squeeze(0))


@torch.no_grad()
def test_a_massive_activation_does_not_make_the_means(generator: torch.Generator) -> None:
    block = block_of(generator, act_fn="gelu", normalization_type="LN")
    tokens, positions, embedding, _, brought = _rows(generator)
    entering = embedding[tokens] + brought
    usual = split_mlp(block, entering[1:], brought[1:], tokens[1:], positions[1:], embedding, n_positions=0)
    entering[0], brought[0] = 1e4, 1e4
    massive = split_mlp(block, entering, brought, tokens, positions, embedding, n_positions=0)
    torch.testing.assert_close(massive.carry, usual.carry)
    torch.testing.assert_close(massive.tokens, usual.tokens)
    assert (usual.tokens - usual.tokens.mean(0)).abs().max() > 0.1

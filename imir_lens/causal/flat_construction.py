"""An ordinary transformer whose attention is the posterior over parents, on the flattened sequence.

Two layers, attention only, absolute positions. Position h of example l stands at l·H + h; the query is example L, and
x_h is predicted at L·H + h − 1. The residual stream holds, side by side, one-hot tokens, one-hot positions, a slot for
each copyer, and a slot of the output.

**Layer 0.** Two copyers an example. From position h of the query, one attends to position h of example l, the other to
position h + 1. Both match one-hot positions with score beta, all else scores 0, and both copy the token into a slot of
their own. So the place that predicts x_h holds x_h^l in the slots of the second kind, and key h' of the query holds
x_h'^l in those of the first.

**Layer 1.** One head scores key h' by `Σ_l log pi[x_h'^l, x_h^l]`, and keys in the query by B more, which keeps it
there. Its values are the query's tokens, and it writes log pi of them: the logits are `Σ_h' attention log pi[x_h', ·]`.

**How the error falls with beta.** With P = (L+1)·H positions, a copyer spends at most ε = P e^{−beta} elsewhere.
As in `imir_lens.causal.construction`, each block of the score is off by at most 2εR, R the range of log pi, and the
score by δ = 2LRε. Keys outside the query score at most L·R more than the candidates before the bonus; with
B = beta + L·R they get at most ε of the attention. With attention restricted to candidates, only δ counts: the total
variation to the posterior is at most tanh(δ/2). On a logarithmic axis the error falls with slope −1 in beta.
"""

import math

import torch
from torch import Tensor

from imir_lens.errors import OptionError, TaskError
from imir_lens.ids import Head
from imir_lens.models.attention import Attention
from imir_lens.models.config import TransformerConfig
from imir_lens.models.transformer import ImirTransformer
from imir_lens.tasks.causal_tree import CausalTree

FLAT_READER = Head(1, 0)  # the head that attends by the posterior
BETA = 30.0


def construct_flat(task: CausalTree, *, n_examples: int | None = None, beta: float = BETA) -> ImirTransformer:
    """Build the ordinary transformer that attends by the posterior over parents, in float64.

    Head l of layer 0 copies the same position of example l, head L + l the next one; head 0 of layer 1 is the reader,
    its other heads write nothing.

    Args:
        task: the kernel, H and L.
        n_examples: L; the task's by default.
        beta: scores of the copyers.

    Raises:
        TaskError: for another task.
        OptionError: when there are no examples, or beta is out of range.
    """
    if not isinstance(task, CausalTree):
        raise TaskError(f"expected the task causal_tree, found {task.name!r}")
    examples = task.examples if n_examples is None else n_examples
    if examples < 1:
        raise OptionError(f"expected at least one example, found n_examples={examples}")
    if not 0 <= beta < math.inf:
        raise OptionError(f"beta must be a number of at least 0: found {beta}")
    layout = _Layout(task.d, task.positions, examples)
    model = ImirTransformer(layout.config())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        _embed(model, layout)
        _write_copyers(model, layout, beta)
        _write_reader(model, layout, task.log_kernel, beta)
    return model.eval()


class _Layout:
    """Where things stand in the residual stream."""

    def __init__(self, d: int, nodes: int, examples: int) -> None:
        self.d, self.nodes, self.examples = d, nodes, examples
        self.n_ctx = (examples + 1) * nodes
        self.position = d
        self.slots = d + self.n_ctx
        self.output = self.slots + 2 * examples * d
        self.d_head = max(nodes, examples * d + 1)

    def config(self) -> TransformerConfig:
        return TransformerConfig(
            d_model=self.output + self.d,
            d_head=self.d_head,
            n_layers=2,
            n_heads=2 * self.examples,
            n_ctx=self.n_ctx,
            d_vocab=self.d,
            attn_only=True,
            normalization_type=None,
            dtype=torch.float64,
        )

    def place(self, example: int, node: int = 0) -> int:
        """Row of the residual stream of a position."""
        return self.position + example * self.nodes + node

    def slot(self, copyer: int) -> slice:
        return slice(self.slots + copyer * self.d, self.slots + (copyer + 1) * self.d)


def _embed(model: ImirTransformer, layout: _Layout) -> None:
    d = layout.d
    model.embed.W_E[:, :d] = torch.eye(d)
    model.pos_embed.W_pos[:, d : layout.slots] = torch.eye(layout.n_ctx)
    model.unembed.W_U[layout.output :] = torch.eye(d)


def _attention(model: ImirTransformer, layer: int) -> Attention:
    attention: Attention = model.blocks[layer].attn  # type: ignore[assignment]
    return attention


def _write_copyers(model: ImirTransformer, layout: _Layout, beta: float) -> None:
    attention, examples, nodes, d = _attention(model, 0), layout.examples, layout.nodes, layout.d
    node = torch.arange(nodes)
    for copyer in range(2 * examples):
        ahead, example = divmod(copyer, examples)
        rows = node[: nodes - ahead]  # the last position has no next one: it looks everywhere, and is not read
        attention.W_Q[copyer, layout.place(examples) + rows, rows + ahead] = beta * math.sqrt(layout.d_head)
        attention.W_K[copyer, layout.place(example) + node, node] = 1.0
        attention.W_V[copyer, :d, :d] = torch.eye(d)
        attention.W_O[copyer, :d, layout.slot(copyer)] = torch.eye(d)


def _write_reader(model: ImirTransformer, layout: _Layout, log_pi: Tensor, beta: float) -> None:
    attention, examples, d = _attention(model, 1), layout.examples, layout.d
    unit = math.sqrt(layout.d_head)
    for example in range(examples):
        dims = slice(example * d, (example + 1) * d)
        attention.W_Q[0, layout.slot(examples + example), dims] = unit * torch.eye(d)
        attention.W_K[0, layout.slot(example), dims] = log_pi
    bonus = beta + examples * float(log_pi.max() - log_pi.min())
    query = slice(layout.place(examples), layout.place(examples + 1))
    attention.W_Q[0, query, examples * d] = unit * bonus
    attention.W_K[0, query, examples * d] = 1.0
    attention.W_V[0, :d, :d] = torch.eye(d)
    attention.W_O[0, :d, layout.output :] = log_pi

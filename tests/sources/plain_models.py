"""Plain PyTorch transformers in the public layouts of nanoGPT and minGPT, written out for the tests."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS, LAYERS, LENGTH, VOCAB = 24, 3, 2, 24, 40


def _new_gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention, joined over heads."""
    batch, length, width = q.shape
    q, k, v = (x.view(batch, length, HEADS, width // HEADS).transpose(1, 2) for x in (q, k, v))
    scores = (q @ k.transpose(-2, -1)) / math.sqrt(width // HEADS)
    scores = scores.masked_fill(torch.ones(length, length).tril() == 0, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2).contiguous().view(batch, length, width)


class _LayerNorm(nn.Module):
    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))
        self.bias = nn.Parameter(torch.zeros(WIDTH)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class _JointAttention(nn.Module):
    def __init__(self, bias: bool, mask: bool) -> None:
        super().__init__()
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH, bias=bias)
        self.c_proj = nn.Linear(WIDTH, WIDTH, bias=bias)
        if mask:
            self.register_buffer("bias", torch.ones(LENGTH, LENGTH).tril().view(1, 1, LENGTH, LENGTH))

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(attend(*self.c_attn(x).split(WIDTH, dim=2)))


class _Block(nn.Module):
    def __init__(self, bias: bool, mask: bool) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = _LayerNorm(bias), _LayerNorm(bias)
        self.attn = _JointAttention(bias, mask)
        self.mlp = nn.ModuleDict(
            {"c_fc": nn.Linear(WIDTH, 4 * WIDTH, bias=bias), "c_proj": nn.Linear(4 * WIDTH, WIDTH, bias=bias)}
        )


class JointGPT(nn.Module):
    """nanoGPT (tied, gelu, biases optional) or minGPT (untied, tanh gelu, biases, masks among its weights)."""

    def __init__(self, *, nano: bool, bias: bool = True) -> None:
        super().__init__()
        self.act = functional.gelu if nano else _new_gelu
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(VOCAB, WIDTH),
                "wpe": nn.Embedding(LENGTH, WIDTH),
                "h": nn.ModuleList(_Block(bias, not nano) for _ in range(LAYERS)),
                "ln_f": _LayerNorm(bias),
            }
        )
        self.lm_head = nn.Linear(WIDTH, VOCAB, bias=False)
        if nano:
            self.lm_head.weight = self.transformer["wte"].weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits."""
        x = self.transformer["wte"](tokens) + self.transformer["wpe"](torch.arange(tokens.shape[1]))
        for block in self.transformer["h"]:
            x = x + block.attn(block.ln_1(x))
            x = x + block.mlp["c_proj"](self.act(block.mlp["c_fc"](block.ln_2(x))))
        return self.lm_head(self.transformer["ln_f"](x))


class _SeparateBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = nn.Module()
        for name in ("key", "query", "value", "proj"):
            setattr(self.attn, name, nn.Linear(WIDTH, WIDTH))
        self.attn.register_buffer("mask", torch.ones(LENGTH, LENGTH).tril().view(1, 1, LENGTH, LENGTH))
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.0))


class SeparateGPT(nn.Module):
    """minGPT as it was before 2022."""

    def __init__(self) -> None:
        super().__init__()
        self.tok_emb = nn.Embedding(VOCAB, WIDTH)
        self.pos_emb = nn.Parameter(torch.zeros(1, LENGTH, WIDTH))
        self.blocks = nn.Sequential(*(_SeparateBlock() for _ in range(LAYERS)))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits."""
        x = self.tok_emb(tokens) + self.pos_emb[:, : tokens.shape[1]]
        for block in self.blocks:
            y = block.ln1(x)
            x = x + block.attn.proj(attend(block.attn.query(y), block.attn.key(y), block.attn.value(y)))
            x = x + block.mlp(block.ln2(x))
        return self.head(self.ln_f(x))


def shaken(model: nn.Module) -> nn.Module:
    """The model with all parameters away from their initial values, biases and norms too."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            centre = float(name.endswith("weight") and parameter.ndim == 1)
            parameter.copy_(centre + 0.2 * torch.randn(parameter.shape, generator=generator))
    return model.eval()

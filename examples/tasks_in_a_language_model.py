"""How well a language model does our tasks, asked in words that are one token each.

    python examples/tasks_in_a_language_model.py [CHECKPOINT [CONTEXTS]]

CHECKPOINT is a .gguf file, or a checkpoint with its tokenizer.json; by default SmolLM2-135M (`make smollm2`).
"""

import sys
from pathlib import Path

import torch

import imir_lens
from imir_lens.evaluation import at_queries, chance_score, score_logits
from imir_lens.model_vocabulary import ModelInVocabulary
from imir_lens.sources import smollm2_path
from imir_lens.token_texts import read_token_texts, tokenizer_of
from imir_lens.vocabulary import choose_vocabulary

WORDS = Path(__file__).with_name("words.txt")  # names first, which `ioi` needs
ASKED = [
    ("repeated", {}),
    ("repeated", {"shortest": 10, "longest": 20, "length": 41}),
    ("copy", {}),
    ("recall", {}),
    ("recall", {"burstiness": 3.0}),
    ("hop", {"hops": 1}),
    ("hop", {"hops": 2}),
    ("ioi", {}),
    ("inversion", {}),
    ("retrieval", {}),
]


def follows(logits: torch.Tensor, batch: imir_lens.Batch) -> str:
    """Share of queries at which the likeliest token is one that followed an earlier mention of the query's word."""
    best, asked = logits.argmax(-1), batch.tokens.gather(1, batch.queries)
    if bool((asked == 0).all()):
        return "-"  # filler is asked
    earlier = torch.arange(batch.tokens.shape[1] - 1) < batch.queries.unsqueeze(2)  # [context query position]
    mention = (batch.tokens[:, None, :-1] == asked.unsqueeze(2)) & earlier
    found = (mention & (batch.tokens[:, None, 1:] == best.unsqueeze(2))).any(2)
    return f"{found.double().mean():.3f}"


def main(checkpoint: Path, contexts: int) -> None:
    """Print a row for each task and each choice of filler and words."""
    model, tokenizer = imir_lens.open_model(checkpoint), tokenizer_of(checkpoint)
    if tokenizer is None:
        sys.exit(f"{checkpoint}: no tokenizer.json beside it")
    texts = read_token_texts(tokenizer)
    line_break = next((token for token in texts.written if texts.text(token) == "\n"), None)
    print("| task | words | filler | loss | accuracy | chance | what followed before | mass |")
    print("|---" * 8 + "|")
    for name, knobs in ASKED:
        task = imir_lens.make_task(name, **knobs)
        choices = [(WORDS, None), (WORDS, line_break)]
        if name == "repeated":  # its filler is one token at the beginning, and nothing else
            choices = [(WORDS, None), ("random", None)]
        for words, filler in choices:
            d_vocab = model.weights.d_vocab
            vocabulary = choose_vocabulary(words, task, d_vocab, filler=filler, tokenizer=tokenizer)
            asked = ModelInVocabulary(model, vocabulary)
            batch = task.sample(contexts, torch.Generator().manual_seed(1))
            logits = at_queries(asked.logits(batch.tokens), batch)
            score, chance = score_logits(logits, batch), chance_score(task, batch)
            settings = "".join(f" {knob}={value}" for knob, value in knobs.items())
            kind = "random tokens" if words == "random" else "common words"
            between = "beginning of text" if filler is None else "line break"
            numbers = f"{follows(logits, batch)} | {asked.mass(batch):.2f}"
            scores = f"{score.loss:.2f} | {score.accuracy:.3f} | {chance.loss:.2f}, {chance.accuracy:.3f}"
            print(f"| {name}{settings} | {kind} | {between} | {scores} | {numbers} |", flush=True)


if __name__ == "__main__":
    given = sys.argv[1:]
    main(Path(given[0]) if given else smollm2_path(), int(given[1]) if len(given) > 1 else 128)

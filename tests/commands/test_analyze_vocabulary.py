"""`imir-lens analyze --vocabulary`: a task put to a model that has more tokens than the task."""

import json
from dataclasses import replace

import pytest
import torch
from calling import call, refused
from hand_built import induction

import imir_lens
from imir_lens.checkpoints import save_checkpoint
from imir_lens.models.transformer import ImirTransformer
from imir_lens.vocabulary import TaskVocabulary

BUILT = induction()
D_VOCAB = 60
IDS = list(range(5, 5 + 2 * BUILT.task.d_vocab, 2))[: BUILT.task.d_vocab]  # every other token
WORDS = [f"word{token}" for token in IDS[1:]]
ASK = ("--task", "recall", *(f"--set={knob}={value}" for knob, value in BUILT.task.knobs.items() if value is not None))
QUICK = ("--contexts", "64", "--bootstraps", "0", "--quiet")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A checkpoint with a circuit in some of its tokens, its tokenizer beside it, and a file of words."""
    place = tmp_path_factory.mktemp("language")
    small = BUILT.model()
    large = ImirTransformer(replace(small.cfg, d_vocab=D_VOCAB, d_vocab_out=D_VOCAB))
    state = dict(small.state_dict())
    wide = {name: large.state_dict()[name].clone() for name in ("embed.W_E", "unembed.W_U", "unembed.b_U")}
    wide["embed.W_E"][IDS], wide["unembed.W_U"][:, IDS] = state["embed.W_E"], state["unembed.W_U"]
    large.load_transformer_lens_state(state | wide)
    save_checkpoint(place / "large.pt", large.state_dict(), large.cfg)
    tokens = {f"Ġword{token}": token for token in range(D_VOCAB)} | {"<|endoftext|>": IDS[0]}
    tokens.pop(f"Ġword{IDS[0]}")
    (place / "tokenizer.json").write_text(json.dumps({"model": {"vocab": tokens}}))
    (place / "words.txt").write_text("\n".join([*WORDS, "left", "over"]))
    return place


@pytest.fixture(scope="module")
def analysed(place):
    out = place / "report"
    result = call("analyze", place / "large.pt", *ASK, "--vocabulary", place / "words.txt", *QUICK, "--out", out)
    assert result.exit_code == 0, result.stderr
    return out


def test_the_circuit_is_found_in_the_words(analysed):
    kept = json.loads((analysed / "report.json").read_text())
    assert {unit["id"] for unit in kept["circuit"]["units"]} == set(BUILT.task.reference_circuit)
    assert kept["verdict"]["mechanism"] == "in_context"


def test_the_report_says_which_words_and_how_much_the_model_puts_on_them(analysed):
    kept = json.loads((analysed / "report.json").read_text())
    assert kept["model"]["d_vocab"] == D_VOCAB
    assert kept["model"]["vocabulary"] | {"ids_sha256": ""} == {
        "size": BUILT.task.d_vocab,
        "ids_sha256": "",
        "filler": IDS[0],
        "words": WORDS[:10],
    }
    assert 0.9 < kept["evaluation"]["vocabulary_mass"] <= 1  # all other tokens have logits near zero
    spoken = {token for example in kept["examples"] for token in example["tokens"]}
    assert spoken <= {"·", *WORDS} and len(spoken) > 10
    assert all(example["target"] in WORDS for example in kept["examples"])
    for page in ("report.md", "report.html"):
        told = (analysed / page).read_text().replace("\\", "")
        assert "mass on the words" in told and "it is asked in 24 of its 60 tokens only" in told
        assert ", ".join(WORDS[:10]) in told


def test_the_python_call_does_the_same(analysed, place):
    vocabulary = TaskVocabulary.of_ids(IDS[1:], filler=IDS[0])
    report = imir_lens.analyze(place / "large.pt", BUILT.task, vocabulary=vocabulary, contexts=64, bootstraps=0)
    kept = json.loads((analysed / "report.json").read_text())
    assert report.data["circuit"]["units"] == kept["circuit"]["units"]
    assert report.data["model"]["vocabulary"]["words"] == [f"#{token}" for token in IDS[1:11]]
    assert "vocabulary=" in report.data["command"]


def test_in_random_tokens_nothing_is_found_and_the_seed_decides_which(place):
    said = []
    for seed in ("1", "1", "2"):
        out = place / f"random-{len(said)}"
        options = ("--vocabulary", "random", "--filler", "0", "--seed", seed)
        result = call("analyze", place / "large.pt", *ASK, *options, *QUICK, "--out", out, "--json")
        assert result.exit_code == 0, result.stderr
        told = json.loads(result.stdout)
        assert told["verdict"]["mechanism"] == "not_detected"
        assert told["model"]["vocabulary"]["filler"] == 0
        said.append(told["model"]["vocabulary"]["ids_sha256"])
    assert said[0] == said[1] != said[2]


def test_without_the_option_the_refusal_names_it(place):
    line = refused(call("analyze", place / "large.pt", *ASK, *QUICK, "--out", place / "none"))
    assert "speaks 24 tokens but the model's vocabulary has 60" in line and "--vocabulary" in line
    assert not (place / "none").exists()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--filler", "3"), "give the vocabulary as well"),
        (("--tokenizer", "here.gguf"), "give the vocabulary as well"),
        (("--vocabulary", "nowhere.txt"), "nowhere.txt: expected 'random' or a file of words"),
        (("--vocabulary", "random", "--filler", "60"), "the filler is token 60: the model has tokens 0 to 59"),
        (("--vocabulary", "random", "--tokenizer", "none.json"), "none.json: cannot be read"),
    ],
    ids=str,
)
def test_options_that_do_not_fit_are_refused_in_one_line(place, options, line):
    assert line in refused(call("analyze", place / "large.pt", *ASK, *options, *QUICK, "--out", place / "none"))


def test_a_word_of_two_tokens_is_refused_with_its_pieces(place):
    words = place / "long.txt"
    words.write_text("\n".join([*WORDS[:5], "word7word9"]))
    line = refused(call("analyze", place / "large.pt", *ASK, "--vocabulary", words, *QUICK, "--out", place / "none"))
    assert "the task has 23 words but the vocabulary 6 words" in line
    words.write_text("\n".join([*WORDS[:5], "word7word9", *WORDS[5:]]))
    line = refused(call("analyze", place / "large.pt", *ASK, "--vocabulary", words, *QUICK, "--out", place / "none"))
    assert "'word7word9' is not a single token" in line and "cut into 'Ġword7'" in line


def test_the_filler_of_a_vocabulary_object_is_not_overruled(place):
    vocabulary = TaskVocabulary.of_ids(IDS[1:], filler=IDS[0])
    with pytest.raises(imir_lens.ImirError, match="has its own filler"):
        imir_lens.analyze(place / "large.pt", BUILT.task, vocabulary=vocabulary, filler=3)
    assert torch.tensor(IDS).unique().numel() == BUILT.task.d_vocab

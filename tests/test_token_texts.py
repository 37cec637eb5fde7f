"""Token texts of the three ways in which tokenizers write the space before a word, and of files that hold none."""

import json

import pytest

from imir_lens.errors import CheckpointError
from imir_lens.token_texts import TokenTexts, read_token_texts

BYTES = {
    "<|endoftext|>": 0,
    "Ġapple": 1,
    "apple": 2,
    "Ġpea": 3,
    "r": 4,
    "Ġna": 5,
    "Ã¯": 6,
    "ve": 7,
    "ĠcafÃ©": 8,
    "Ċ": 9,
}
PIECES = ["<unk>", "<s>", "▁apple", "apple", "▁", "▁pea", "r", "<0x0A>"]


def written(tmp_path, model, added=()):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"model": model, "added_tokens": list(added)}), encoding="utf-8")
    return read_token_texts(path)


def test_byte_level_tokens_are_found_and_read_back(tmp_path):
    texts = written(tmp_path, {"type": "BPE", "vocab": BYTES}, [{"id": 10, "content": "<|im_end|>", "special": True}])
    assert texts.find("apple") == 1  # with the space before it, not token 2
    assert texts.find("café") == 8
    assert texts.find("pear") is None and texts.pieces("pear") == ["Ġpea", "r"]
    assert texts.pieces("naïve") == ["Ġna", "Ã¯", "ve"]
    assert [texts.text(token) for token in (1, 2, 8, 9, 10)] == ["apple", "apple", "café", "\n", "<|im_end|>"]
    assert texts.text(77) == "#77"
    assert texts.special == {0, 10} and texts.beginning == 0


def test_sentence_pieces_are_found_and_read_back(tmp_path):
    texts = written(tmp_path, {"type": "Unigram", "vocab": [[piece, -1.0] for piece in PIECES]})
    assert texts.find("apple") == 2 and texts.text(2) == "apple"
    assert texts.find("pear") is None and texts.pieces("pear") == ["▁pea", "r"]
    assert texts.special == {0, 1, 7} and texts.beginning == 1
    assert texts.text(4) == "▁"  # a lone space is shown as it is written


def test_a_tokenizer_without_marks_for_spaces_has_words_as_they_are(tmp_path):
    texts = written(tmp_path, {"type": "WordPiece", "vocab": {"[CLS]": 0, "apple": 1, "##s": 2}})
    assert texts.find("apple") == 1 and texts.beginning == 0
    assert TokenTexts("here", {0: "apple"}).beginning is None


def test_the_tokenizers_own_library_agrees_on_what_is_one_token(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    vocab = {"<|endoftext|>": 0}
    for token in ["Ġ", *"aelpqr", "Ġa", "Ġap", "pl", "Ġappl", "Ġapple", "Ã", "©", "Ã©", "ĠaÃ©"]:
        vocab.setdefault(token, len(vocab))
    merges = [("Ġ", "a"), ("Ġa", "p"), ("p", "l"), ("Ġap", "pl"), ("Ġappl", "e"), ("Ã", "©"), ("Ġa", "Ã©")]
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=merges))
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.decoder = tokenizers.decoders.ByteLevel()
    theirs.save(str(tmp_path / "tokenizer.json"))
    texts = read_token_texts(tmp_path / "tokenizer.json")
    single = 0
    for word in ("apple", "aé", "appl", "q", "ar"):
        ids = theirs.encode(f" {word}").ids
        assert texts.find(word) == (ids[0] if len(ids) == 1 else None), word
        if len(ids) == 1:
            single += 1
            assert texts.text(ids[0]) == theirs.decode(ids).strip()
    assert single == 3


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"{", "not a tokenizer.json: it is no JSON"),
        (b"\xff\xfe{}", "not a tokenizer.json: it is no JSON"),
        (b"[" * 100_000, "not a tokenizer.json: it is no JSON"),
        (b"[]", "no tokens"),
        (b'{"model": {"vocab": {"a": "b", "c": -1, "d": true, "e": 1e99}}}', "no tokens"),
        (b'{"model": {"vocab": [[], 3, [4]]}, "added_tokens": [{"id": 99999999999, "content": "x"}, 7]}', "no tokens"),
    ],
    ids=["cut", "no text", "deep", "a list", "no ids", "no rows"],
)
def test_what_is_no_tokenizer_is_refused_in_one_line(tmp_path, content, line):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        read_token_texts(path)
    assert line in str(caught.value) and str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"none\.json: cannot be read: No such file"):
        read_token_texts(tmp_path / "none.json")

"""A task's tokens among a model's: chosen by ids, by words and at random; what cannot stand for a task is refused."""

import pytest
import torch

from imir_lens.errors import OptionError
from imir_lens.tasks import make_task
from imir_lens.token_texts import TokenTexts
from imir_lens.vocabulary import TaskVocabulary, choose_vocabulary

WORDS = ["apple", "river", "stone", "table", "horse", "bread", "chair", "paper"]
TEXTS = TokenTexts(
    "tokens.gguf",
    {
        0: "<unk>",
        1: "<s>",
        2: "apple",
        **{10 + place: f"▁{word}" for place, word in enumerate(WORDS)},
        30: "▁pea",
        31: "r",
    },
)
TASK = make_task("repeated", vocab=6, shortest=2, longest=3, length=7)
FREE = make_task("ngram", vocab=6, n=2, length=7)  # without filler


def test_tokens_go_to_the_model_and_back(generator):
    vocabulary = TaskVocabulary.of_ids([40, 7, 12, 31, 3], filler=9)
    tokens = torch.randint(6, (50, 7), generator=generator)
    asked = vocabulary.to_model(tokens)
    assert set(asked.unique().tolist()) == {9, 40, 7, 12, 31, 3}
    assert asked[tokens == 2].unique().tolist() == [7]
    assert torch.equal(vocabulary.to_task(asked), tokens)
    assert vocabulary.to_task(torch.tensor([0, 8, 9, 41, 40, -3, 10**12])).tolist() == [-1, -1, 0, -1, 1, -1, -1]


def test_words_are_taken_in_order_with_the_space_before_them():
    vocabulary = TaskVocabulary.of_words(WORDS, TEXTS, count=5, filler=1)
    assert vocabulary.ids == (1, 10, 11, 12, 13, 14)
    assert vocabulary.decode(torch.tensor([0, 1, 5])) == ["·", "apple", "horse"]
    assert vocabulary.summary()["words"] == WORDS[:5]
    assert len(vocabulary.summary()["ids_sha256"]) == 64
    other = TaskVocabulary.of_words(WORDS[::-1], TEXTS, count=5, filler=1)
    assert other.summary()["ids_sha256"] != vocabulary.summary()["ids_sha256"]


def test_a_random_choice_is_the_seeds_and_leaves_out_what_is_no_text():
    one, same, other = (TaskVocabulary.random(5, 1000, filler=3, seed=seed) for seed in (1, 1, 2))
    assert one == same and one != other
    assert one.ids[0] == 3 and 3 not in one.ids[1:] and max(one.ids) < 1000
    assert one.texts[1] == f"#{one.ids[1]}"
    drawn = {
        token for seed in range(40) for token in TaskVocabulary.random(5, 40, filler=2, seed=seed, texts=TEXTS).ids
    }
    assert drawn == {2, *range(10, 18), 30, 31}  # never <unk> and <s>, never ids without a token


def test_files_hold_words_or_ids_and_random_needs_none(tmp_path):
    ids = tmp_path / "ids.txt"
    ids.write_text("\n".join(map(str, [30, 31, 11, 12, 13, 14])) + "\n\n")
    assert choose_vocabulary(ids, TASK, 40).ids == (0, 30, 31, 11, 12, 13)
    assert choose_vocabulary(ids, TASK, 40, filler=5).ids == (5, 30, 31, 11, 12, 13)
    assert choose_vocabulary(ids, FREE, 40).ids == (30, 31, 11, 12, 13, 14)
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_text('{"model": {"vocab": {"<s>": 1, "a": 2, "Ġb": 3, "Ġc": 4, "Ġd": 5, "Ġe": 6, "Ġf": 7}}}')
    words = tmp_path / "words.txt"
    words.write_text("f\ne\nd\nc\nb\n")
    made = choose_vocabulary(words, TASK, 8, tokenizer=tokenizer)
    assert made.ids == (1, 7, 6, 5, 4, 3) and made.texts == ("·", *"fedcb")  # the filler begins the model's texts
    drawn = choose_vocabulary("random", TASK, 8, tokenizer=tokenizer, seed=3)
    assert drawn.ids[0] == 1 and set(drawn.ids) < set(range(1, 8))
    assert choose_vocabulary("random", FREE, 8, tokenizer=tokenizer).filler is False


def ids_of(*ids, **options):
    return lambda: TaskVocabulary.of_ids(ids, **{"filler": 0} | options)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (ids_of(3, 4, 3), "the model's token 3 stands for both '#3' and '#3'"),
        (ids_of(3, 0), "the model's token 0 stands for both the filler and '#0'"),
        (ids_of(-1), "token -1 in the vocabulary: expected ids from 0"),
        (lambda: TaskVocabulary((1, 2), ("a",)), "2 tokens with 1 texts"),
        (lambda: TaskVocabulary.of_ids([3, 50], filler=0).check(50), "'#50' is token 50: the model has tokens 0 to 49"),
        (
            lambda: TaskVocabulary.of_ids([3], filler=70).check(50),
            "the filler is token 70: the model has tokens 0 to 49",
        ),
        (lambda: TaskVocabulary.random(9, 9, filler=0), "the task has 9 words but the model 8 ordinary tokens"),
        (
            lambda: TaskVocabulary.of_words(["apple", "pear"], TEXTS, filler=1),
            "'pear' is not a single token of tokens.gguf: it is cut into '▁pea' + 'r'",
        ),
        (
            lambda: TaskVocabulary.of_words(["apple", "river", "apple"], TEXTS, filler=1),
            "the model's token 10 stands for both 'apple' and 'apple'",
        ),
        (
            lambda: TaskVocabulary.of_words(WORDS, TEXTS, count=9, filler=1),
            "the task has 9 words but the vocabulary 8 words",
        ),
        (lambda: choose_vocabulary("nowhere.txt", TASK, 40), "nowhere.txt: expected 'random' or a file of words"),
        (lambda: choose_vocabulary("random", FREE, 40, filler=3), "the task ngram has no filler"),
        (lambda: choose_vocabulary("random", TASK, 40, filler=40), "the filler is token 40"),
    ],
    ids=lambda value: value if isinstance(value, str) else "choice",
)
def test_what_cannot_stand_for_a_task_is_refused_in_one_line(make, line):
    with pytest.raises(OptionError) as caught:
        make()
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_words_without_a_tokenizer_and_files_that_are_no_text_are_refused(tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("apple\n12\n")
    with pytest.raises(OptionError, match=r"holds words: give the model's tokenizer\.json or \.gguf with --tokenizer"):
        choose_vocabulary(words, TASK, 40)
    words.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(OptionError, match="in UTF-8"):
        choose_vocabulary(words, TASK, 40)
    words.write_text("")
    with pytest.raises(OptionError, match="the task has 5 words but the vocabulary 0 tokens"):
        choose_vocabulary(words, TASK, 40)

"""The file that describes a sweep: what it means, and what is refused."""

import json
import re
from pathlib import Path

import pytest
from small_sweeps import HERE, SPEC, write_spec

from imir_lens.errors import OptionError
from imir_lens.sweep import read_spec
from imir_lens.tasks import make_task
from imir_lens.training.recipes import default_recipe

OWN = '[sweep]\ncell = "sweep_cells:square"\n[sweep.axes]\nx = [1, 2, 1]\n'


def settings(tmp_path, text, **options):
    return [json.loads(cell.canonical) for cell in read_spec(write_spec(tmp_path, text), **options).cells]


def test_a_cell_holds_everything_it_depends_on(tmp_path):
    first, *_, last = settings(tmp_path, SPEC)
    assert first["task"] == {"name": "recall", "knobs": make_task("recall", vocab=9, pairs=2, length=7).knobs}
    assert (first["model"]["d_model"], first["model"]["n_heads"], first["model"]["d_vocab"]) == (8, 1, 9)
    assert first["train"]["weight_decay"] == 0.1
    assert first["analysis"] == {"contexts": 48, "bootstraps": 0, "budget": 0.01, "seed": 0}
    assert (first["train"]["seed"], first["train"]["learning_rate"]) == (0, 0.01)
    assert (last["train"]["seed"], last["train"]["learning_rate"]) == (1, 0.003)
    assert "device" not in first
    assert settings(tmp_path, SPEC, device="cpu")[0]["device"] == "cpu"


def test_the_recipe_of_a_task_holds_where_the_spec_is_silent(tmp_path):
    (cell,) = settings(tmp_path, '[task]\nname = "hop"\n[analysis]\nenabled = false\n[sweep.axes]\ntrain.seed = [3]')
    recipe = default_recipe(make_task("hop"))
    assert cell["train"]["steps"] == recipe.options["steps"]
    assert cell["train"]["curriculum"] == [[until, knobs] for until, knobs in recipe.options["curriculum"]]
    assert cell["model"]["d_model"] == recipe.config.d_model
    assert cell["analysis"] is None


def test_ways_to_write_the_same_are_one_cell(tmp_path):
    both = SPEC + '"model.attn_only" = [true]\n"task.pairs" = [2, 2.0]\n'
    read = read_spec(write_spec(tmp_path, both.replace("pairs = 2\n", "")))
    plain = read_spec(write_spec(tmp_path))
    assert [cell.hash for cell in read.cells] == [cell.hash for cell in plain.cells]
    assert (read.duplicates, plain.duplicates) == (4, 0)


def test_axes_may_be_nested_and_name_the_task(tmp_path):
    text = '[train]\nsteps = 5\n[sweep.axes]\ntask.name = ["recall", "ngram"]\ntrain.seed = { integers = [1, 2] }'
    cells = settings(tmp_path, text)
    assert [(cell["task"]["name"], cell["train"]["seed"]) for cell in cells] == [
        ("recall", 1), ("recall", 2), ("ngram", 1), ("ngram", 2)
    ]  # fmt: skip


RANDOM = (
    SPEC.partition("[sweep]")[0]
    + """
[sweep]
kind = "random"
n = {n}
seed = {seed}
[sweep.axes]
"train.learning_rate" = {{ logspace = [1e-4, 1e-1] }}
"model.n_heads" = {{ integers = [1, 3] }}
"""
)


def test_a_random_sweep_is_a_function_of_its_seed(tmp_path):
    def hashes(**given):
        return [cell.hash for cell in read_spec(write_spec(tmp_path, RANDOM.format(**given))).cells]

    first = hashes(n=12, seed=0)
    assert len(set(first)) == 12
    assert hashes(n=12, seed=0) == first
    assert hashes(n=20, seed=0)[:12] == first
    assert not set(hashes(n=12, seed=1)) & set(first)


def test_a_sweep_may_have_a_cell_function_of_its_own(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(HERE)
    read = read_spec(write_spec(tmp_path, "top = 1\n[deep.er]\ny = 2\n" + OWN + '"deep.er.z" = ["a"]\n'))
    assert read.duplicates == 1
    assert [cell.settings for cell in read.cells] == [
        {"top": 1, "deep": {"er": {"y": 2, "z": "a"}}, "x": x} for x in (1, 2)
    ]
    assert read.cells[0].function == "sweep_cells:square"
    assert read.cells[0].label == "x=1 deep.er.z=a"
    with pytest.raises(OptionError, match="module 'sweep_cells' has no function 'sqare'"):
        read_spec(write_spec(tmp_path, OWN.replace("square", "sqare")))


def test_a_module_beside_the_spec_is_found(tmp_path):
    (tmp_path / "module_beside_the_spec.py").write_text("def cell(settings, folder):\n    return {}\n")
    assert (
        len(read_spec(write_spec(tmp_path, OWN.replace("sweep_cells:square", "module_beside_the_spec:cell"))).cells)
        == 2
    )


def documented(*, own):
    text = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text(encoding="utf-8")
    first, second = re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return second if own else first


def test_the_documented_specs_are_sweeps(tmp_path):
    assert len(settings(tmp_path, documented(own=False))) == 18
    (tmp_path / "my_experiment.py").write_text("def run(settings, folder):\n    return {}\n")
    cells = settings(tmp_path, documented(own=True))
    assert (len(cells), cells[0]) == (1600, {"gain": 2, "start": {"alpha": 0.0, "beta": 0.0}})
    line = "unknown key 'task.burstines'; did you mean 'task.burstiness'?"
    with pytest.raises(OptionError, match=re.escape(line)):
        settings(tmp_path, documented(own=False).replace('"task.burstiness"', '"task.burstines"'))


def replaced(old, new):
    assert old in SPEC
    return SPEC.replace(old, new)


BAD = [
    ("", "no table [sweep]"),
    ("[sweep", "is not TOML"),
    (replaced("[train]", "[trian]"), "unknown key 'trian'; did you mean 'train'?"),
    (replaced("steps = 20", "stepz = 20"), "unknown key 'train.stepz'; did you mean 'train.steps'?"),
    (replaced("vocab = 9", "vocb = 9"), "unknown key 'task.vocb'; did you mean 'task.vocab'?"),
    (replaced("d_head = 4", "d_haed = 4"), "unknown key 'model.d_haed'; did you mean 'model.d_head'?"),
    (replaced("contexts = 48", "context = 48"), "did you mean 'analysis.contexts'?"),
    (replaced('kind = "grid"', 'knd = "grid"'), "unknown key 'sweep.knd'; did you mean 'kind'?"),
    (replaced('"train.seed"', '"train.sed"'), "unknown key 'train.sed'; did you mean 'train.seed'?"),
    (replaced('"train.seed"', '"task.burst"'), "unknown key 'task.burst'; did you mean 'task.burstiness'?"),
    (replaced('"train.seed" = [0, 1]', '"train.seed" = 0'), "axis 'train.seed': expected a list"),
    (replaced('"train.seed"', '"train.steps"'), "'train.steps' is given as 20 and as an axis"),
    (replaced('"train.seed"', '"task.name.x"'), "axis 'task.name.x' does not fit: 'task.name' is 'recall'"),
    (replaced("[sweep.axes]", "[sweep.axes]\ntrain.seed = [5]"), "axis 'train.seed' is given twice"),
    (SPEC.partition("[sweep.axes]")[0], "no table [sweep.axes]"),
    (replaced('kind = "grid"', 'kind = "gird"'), "'sweep.kind' is 'gird'"),
    (replaced('kind = "grid"', "n = 3"), "'sweep.n' is for random sweeps"),
    (replaced('kind = "grid"', 'kind = "random"'), "'sweep.n' is None: expected a whole number from 1"),
    (replaced('kind = "grid"', 'kind = "random"\nn = true'), "'sweep.n' is True"),
    (replaced('kind = "grid"', "cell = 3"), "'sweep.cell' is 3"),
    (replaced('"recall"', '"recal"'), "unknown task 'recal'; did you mean 'recall'?"),
    (replaced('name = "recall"', ""), "'task.name' is None"),
    (replaced("steps = 20", "steps = 2.5"), "'train.steps' is 2.5: expected a whole number"),
    (replaced("steps = 20", 'steps = "many"'), "'train.steps' is 'many'"),
    (replaced("steps = 20", "steps = 0"), "steps must be at least 1: found 0"),
    (replaced("steps = 20", "curriculum = [3]"), "'train.curriculum' has 3: expected a list of [until"),
    (replaced("steps = 20", "curriculum = [[5, {hop = 1}]]"), "curriculum stage {'hop': 1} until step 5"),
    (
        replaced("[0.01, 0.003]", "[0.01, -1]"),
        "cell train.seed=0 train.learning_rate=-1: learning_rate must be a positive",
    ),
    (replaced("[0.01, 0.003]", "[0.01, inf]"), "learning_rate must be a positive number: found inf"),
    (replaced("d_model = 8", "d_model = 0"), "d_model=0"),
    (replaced("d_model = 8", "d_model = 1000000000"), "cfg asks for a model of"),
    (replaced("d_model = 8", "n_ctx = 3"), "the model has n_ctx=3, but task 'recall' needs at least 7"),
    (replaced("d_model = 8", "d_vocab_out = 10"), "the analysis does not support an output vocabulary"),
    (replaced("pairs = 2", "pairs = 99"), "cell train.seed=0 train.learning_rate=0.01: "),
    (replaced("pairs = 2", 'pairs = "two"'), "knob 'pairs' of task 'recall' takes int; found 'two'"),
    (replaced("contexts = 48", "budget = 2"), "budget must lie between 0 and 1"),
    (replaced("contexts = 48", "seed = -1"), "seed must be at least 0"),
    (replaced("contexts = 48", 'enabled = "no"'), "'analysis.enabled' is 'no': expected true or false"),
    (replaced("[task]", "train = 3\n[task]").replace("[train]", "[other]"), "'train' is 3: expected a table [train]"),
]


@pytest.mark.parametrize(("text", "said"), BAD, ids=[said[:40] for _, said in BAD])
def test_a_bad_spec_is_refused_with_its_key(text, said, tmp_path):
    file = write_spec(tmp_path, text)
    with pytest.raises(OptionError) as error:
        read_spec(file)
    assert str(error.value).startswith(str(file))
    assert said in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_a_spec_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(OptionError, match="no such file or directory"):
        read_spec(tmp_path / "absent.toml")
    (tmp_path / "spec.toml").write_bytes(b"\xff")
    with pytest.raises(OptionError, match="byte 0 is not text"):
        read_spec(tmp_path / "spec.toml")

"""`imir-lens heads`: what it writes, what it prints, and what it refuses."""

import json

import pytest
from calling import DATA, RECALL, call, contents, refused

ROTARY = DATA / "recall_rotary_ln.pt"


def test_it_prints_the_labels_and_writes_the_atlas(tmp_path):
    out = tmp_path / "atlas"
    result = call("heads", ROTARY, "--data", "--check", 2, "--contexts", 4, "--length", 12, "--out", out)
    assert result.exit_code == 0, result.stderr
    assert "induction        L1H0 L1H1" in result.stdout
    assert "previous token   L0H0" in result.stdout
    assert "Looked through all 4 pairs" in result.stdout
    assert str(out / "heads.html") in result.stdout
    for step in ("vocabulary …", "layers …", "patterns …", "scores …", "removals …"):
        assert result.stderr.count(step) == 1
    data = json.loads((out / "atlas.json").read_text())
    assert data["command"].startswith("imir-lens heads ")
    assert (data["data"]["contexts"], data["data"]["length"], len(data["heads"])) == (4, 12, 4)


def test_json_is_all_of_stdout_and_quiet_is_quiet(tmp_path):
    result = call("heads", RECALL, "--out", tmp_path / "a", "--json", "--quiet", "--effect", 1.5, "--seed", 3)
    told = json.loads(result.stdout)
    assert result.stderr == ""
    assert told["seed"] == 3 and told["thresholds"]["effect"] == 1.5
    assert {label["name"] for label in told["labels"]["L1H0"]} == {"induction", "copying"}
    assert told["data"] is None and told["check"] is None
    assert call("heads", RECALL, "--out", tmp_path / "b", "--quiet").stdout == ""


def test_the_same_command_writes_the_same_atlas(tmp_path):
    for name in ("a", "b"):
        assert call("heads", ROTARY, "--data", "--contexts", 2, "--out", tmp_path / name, "--quiet").exit_code == 0
    first, second = contents(tmp_path / "a"), contents(tmp_path / "b")
    strip = {
        name: text.replace(str(tmp_path / "b").encode(), str(tmp_path / "a").encode()) for name, text in second.items()
    }
    assert first == strip


def test_a_relation_is_read_from_a_file(tmp_path):
    pairs = tmp_path / "pairs.txt"
    pairs.write_text("# read, predicted\n1 2\n\n3, 4\n")
    out = tmp_path / "out"
    assert call("heads", RECALL, "--relation", pairs, "--out", out, "--quiet").exit_code == 0
    data = json.loads((out / "atlas.json").read_text())
    assert data["settings"]["relation_pairs"] == 2
    assert data["heads"][0]["assoc_readout"] is not None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("1 2\n3\n", "line 2"),
        ("", "found none"),
        ("1 -2\n", "line 1"),
        ("1 999999\n", "vocabulary"),
        ("1 ²\n", "line 1"),
    ],
)
def test_a_relation_that_is_none_is_refused(text, told, tmp_path):
    pairs = tmp_path / "pairs.txt"
    pairs.write_text(text)
    assert told in refused(call("heads", RECALL, "--relation", pairs, "--out", tmp_path / "out", "--quiet"))
    assert not (tmp_path / "out" / "atlas.json").exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--check", "5"), "check=5"),
        (("--bound", "2"), "bound=2.0"),
        (("--data", "--length", "1"), "length=1"),
        (("--relation", "nowhere.txt"), "nowhere.txt"),
    ],
)
def test_options_out_of_range_are_refused(options, told, tmp_path):
    assert told in refused(call("heads", RECALL, *options, "--out", tmp_path / "out", "--quiet"))


def test_a_missing_checkpoint_and_a_taken_directory_are_refused(tmp_path):
    assert "nothing.pt" in refused(call("heads", tmp_path / "nothing.pt", "--out", tmp_path / "out", "--quiet"))
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine").write_text("mine")
    assert "--force" in refused(call("heads", RECALL, "--out", tmp_path / "taken"))
    assert call("heads", RECALL, "--out", tmp_path / "taken", "--force", "--quiet").exit_code == 0
    assert (tmp_path / "taken" / "mine").read_text() == "mine"

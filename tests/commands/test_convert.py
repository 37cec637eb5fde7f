"""`imir-lens convert`: what it writes and what it prints."""

import json

import torch
from calling import RECALL, call, refused

import imir_lens


def test_convert_writes_a_model_and_says_how_it_was_checked(tmp_path):
    out = tmp_path / "model"
    result = call("convert", RECALL, "--out", out)
    assert result.exit_code == 0, result.stderr
    assert f"model      {out / 'model.safetensors'}" in result.stdout
    assert "checked    logits differ by 0 at most" in result.stdout
    assert "load it again and compare logits" in result.stderr
    before, after = imir_lens.load_checkpoint(RECALL), imir_lens.load_checkpoint(out)
    assert all(torch.equal(before.state_dict[name], weight) for name, weight in after.state_dict.items())


def test_convert_prints_json_and_replaces_with_force_only(tmp_path):
    out = tmp_path / "model"
    assert call("convert", RECALL, "--out", out, "--quiet").stdout == ""
    assert (
        refused(call("convert", RECALL, "--out", out))
        == f"imir-lens: '{out}' exists; pass --force to overwrite (in Python: force=True)"
    )
    (out / "notes.txt").write_text("mine")
    result = call("convert", RECALL, "--out", out, "--force", "--json", "--dtype", "float64")
    told = json.loads(result.stdout)
    assert (told["difference"] < 1e-4, told["compared_with"]) == (True, "the source as read here")
    assert told["sha256"] == imir_lens.load_checkpoint(RECALL).sha256
    assert imir_lens.load_checkpoint(out).config["dtype"] == "torch.float64"
    assert (out / "notes.txt").read_text() == "mine"


def test_convert_refuses_in_one_line(tmp_path):
    def said(source, *options):
        return refused(call("convert", source, "--out", tmp_path / "out", "--quiet", *options))

    assert "nowhere.gguf: no such file or directory" in said(tmp_path / "nowhere.gguf")
    assert "dtype 'int4': expected one of float32" in said(RECALL, "--dtype", "int4")
    assert "nothing.json: no such name map" in said(RECALL, "--names", "nothing.json")
    assert not any(tmp_path.iterdir())

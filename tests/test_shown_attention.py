"""Attention to look at: the right patterns, labels and words; small, self-contained, and safe whatever tokens say."""

import re
from pathlib import Path

import pytest
import torch

import imir_lens
from imir_lens.errors import OptionError
from imir_lens.report import attention_view

DATA = Path(__file__).parent / "data"
TASK = imir_lens.make_task("recall")


@pytest.fixture(scope="module")
def model() -> imir_lens.LensModel:
    return imir_lens.open_model(DATA / "recall_rotary_ln.pt")


@pytest.fixture(scope="module")
def batch() -> imir_lens.Batch:
    return TASK.sample(3, torch.Generator().manual_seed(0))


def test_the_patterns_are_the_models(model, batch) -> None:
    view = imir_lens.attention(model, batch, ["L0H0", "L1H1"], context=2, decode=TASK.decode)
    _, cache = model.run_with_cache(batch.tokens, ["blocks.0.attn.hook_pattern", "blocks.1.attn.hook_pattern"])
    for name, layer, index in (("L0H0", 0, 0), ("L1H1", 1, 1)):
        shown = torch.tensor(view.example["attention"][name])
        torch.testing.assert_close(shown, cache[f"blocks.{layer}.attn.hook_pattern"][2, index], check_dtype=False)
        assert shown.max() > 0.5
    assert view.example["tokens"] == TASK.decode(batch.tokens[2])
    assert view.example["query"] == int(batch.queries[2, 0])


def test_heads_of_a_circuit_carry_their_roles() -> None:
    report = imir_lens.analyze(DATA / "recall_2l.pt", "recall", contexts=64, bootstraps=0)
    view = imir_lens.attention(DATA / "recall_2l.pt", TASK.sample(1, torch.Generator()), report)
    assert list(view.example["attention"]) == ["L0H0 α", "L1H0 β γ aux"]
    assert "L0H0 α" in view.svg()


def test_every_head_is_shown_without_a_choice_and_bare_tokens_will_do(model) -> None:
    view = imir_lens.attention(model, torch.arange(20))
    assert list(view.example["attention"]) == ["L0H0", "L0H1", "L1H0", "L1H1"]
    assert view.example["tokens"][:3] == ["0", "1", "2"]
    assert view.dropped == ""


def test_large_inputs_are_capped_and_it_says_so(monkeypatch, model, batch) -> None:
    monkeypatch.setattr("imir_lens.shown_attention.MOST_HEADS", 3)
    monkeypatch.setattr("imir_lens.shown_attention.MOST_TOKENS", 10)
    view = imir_lens.attention(model, batch)
    assert len(view.example["attention"]) == 3
    assert [len(view.example["tokens"]), *{len(row) for p in view.example["attention"].values() for row in p}] == [
        10,
        10,
    ]
    assert view.dropped == "1 more heads are not shown. The first 14 tokens are not shown."
    assert view.dropped in view.html()
    assert view.dropped in repr(view)


def test_a_notebook_gets_a_frame_that_fetches_nothing(model, batch) -> None:
    view = imir_lens.attention(model, batch, ["L0H0"])
    shown, page = view._repr_html_(), view.html()
    assert shown.startswith('<iframe sandbox="allow-scripts"')
    assert "Rows are queries, columns are keys." in page
    assert "default-src &#39;none&#39;" in page
    assert not re.findall(r'(?:src|href)="(?!data:|#)', page)
    two = shown + view._repr_html_()
    assert two.count("<iframe") == two.count("</iframe>") == 2


def test_without_circuitsvis_the_fixed_figure_is_shown(monkeypatch, model, batch) -> None:
    monkeypatch.setattr(attention_view, "read_bundle", lambda: None)
    view = imir_lens.attention(model, batch, ["L0H0"])
    assert view._repr_html_().startswith("<svg")
    assert "<script" not in view.html().replace('<script type="application/json"', "")


def test_tokens_stay_text(model, batch) -> None:
    hostile = ["</script><script>alert(1)</script>", "<bos>", "\n", '"><img src=x onerror=alert(1)>']
    view = imir_lens.attention(model, batch, ["L0H0"], decode=lambda ids: (hostile * 9)[: len(ids)])
    for text in (view.html(), view._repr_html_(), view.svg()):
        assert "<script>alert" not in text
        assert "<img" not in text


def test_files_are_written(model, batch, tmp_path) -> None:
    view = imir_lens.attention(model, batch, ["L0H0"])
    assert view.save(tmp_path / "a.svg").read_text().lstrip().startswith(("<?xml", "<svg"))
    assert view.save(tmp_path / "a.html").read_text().startswith("<!DOCTYPE html>")
    assert view.save(tmp_path / "a.SVG").read_text() == (tmp_path / "a.svg").read_text()
    with pytest.raises(OptionError, match=r"saved as \.html, \.svg or \.png, found '\.pdf'"):
        view.save(tmp_path / "a.pdf")
    assert not (tmp_path / "a.pdf").exists()


def test_one_head_needs_no_list(model, batch) -> None:
    assert list(imir_lens.attention(model, batch, "L0H1").example["attention"]) == ["L0H1"]


def test_a_context_without_tokens_is_refused(model) -> None:
    with pytest.raises(OptionError, match="a context without tokens"):
        imir_lens.attention(model, torch.zeros(1, 0, dtype=torch.long))


@pytest.mark.parametrize(
    ("heads", "said"),
    [(["L9H0"], "head L9H0: the model has 2 layers of 2 heads"), (["head"], "'head' is no head"), ([], "no heads")],
)
def test_heads_that_are_not_there_are_refused(heads, said, model, batch) -> None:
    with pytest.raises(OptionError, match=said):
        imir_lens.attention(model, batch, heads)
    with pytest.raises(OptionError, match="context 3: the batch has 3"):
        imir_lens.attention(model, batch, context=3)

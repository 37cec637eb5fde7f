"""Take the pictures of docs/examples.md: `PYTHONPATH=.:tests python tests/examples/pictures.py`.

Each is a part of a notebook's page: from the top of one cell to the bottom of another, at most so many pixels.
"""

import base64
import tempfile
import time
from pathlib import Path

import chromium
from palette import with_palette

from examples.notebooks import NOTEBOOKS, execute, page

IMAGES = Path(__file__).parents[2] / "docs" / "images" / "examples"
WIDTH = 1000
# First cell, last cell, most pixels.
PARTS = {
    "1_find_an_induction_head": ("analyze", "analyze", 810),
    "2_memory_against_context": ("card", "card", 480),
    "3_bayesian_model_averaging": ("report", "report", 830),
    "4_watch_a_circuit_form": ("trajectory", "trajectory", 560),
    "5_which_initialisation_wins": ("draw", "draw", 900),
    "6_heads_of_a_language_model": ("attention", "attention", 1100),
    "7_bring_your_own_task": ("plant", "plant", 560),
    "8_bring_your_own_weights": ("names", "compare", 760),
}


def main() -> None:
    """Run all notebooks and write a picture of each."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium.browser(Path(folder)) as web:
        for path in NOTEBOOKS:
            place = Path(folder) / "page.html"
            place.write_text(page(execute(path), title=path.stem), encoding="utf-8")
            take(web, place, *PARTS[path.stem], to=IMAGES / f"{path.stem}.png")


def take(web: chromium.Browser, place: Path, first: str, last: str, most: int, *, to: Path) -> None:
    """Write the part of a page between two cells as a PNG."""
    shown = web.open(place, width=WIDTH)
    shown.resize(WIDTH, shown.evaluate("document.documentElement.scrollHeight"))
    time.sleep(3 if shown.evaluate("document.querySelector('iframe') !== null") else 0)  # frames draw themselves
    shown.settle()
    edge = "document.getElementById('cell-id={}').getBoundingClientRect().{}"
    top, bottom = shown.evaluate(edge.format(first, "top")), shown.evaluate(edge.format(last, "bottom"))
    clip = {"x": 0, "y": top, "width": WIDTH, "height": min(bottom - top, most), "scale": 1}
    data = shown.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
    to.write_bytes(with_palette(base64.b64decode(data)))
    shown.close()


if __name__ == "__main__":
    main()

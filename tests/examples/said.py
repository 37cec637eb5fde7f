"""What an executed notebook says: the text and the pictures of each cell, by the cell's id."""

import re
from html import unescape

from nbformat import NotebookNode


class Said:
    """The outputs of an executed notebook.

    Args:
        notebook: as `examples.notebooks.execute` returns it.
    """

    def __init__(self, notebook: NotebookNode) -> None:
        self.cells = {cell.id: cell for cell in notebook.cells if cell.cell_type == "code"}

    def text(self, cell: str) -> str:
        """Everything that a cell printed, or showed as plain text; cards as their text."""
        return "\n".join(_text(output) for output in self.cells[cell].outputs)

    def numbers(self, cell: str) -> list[float]:
        """The numbers of a cell's text, in order; a percentage is a share."""
        found = re.findall(r"(?<![\w.])([-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)(%?)", self.text(cell))
        return [float(number) / (100 if percent else 1) for number, percent in found]

    @property
    def html(self) -> list[str]:
        """What is shown as HTML, in order."""
        shown = [output.get("data", {}) for cell in self.cells.values() for output in cell.outputs]
        return [data["text/html"] for data in shown if "text/html" in data]

    @property
    def frames(self) -> int:
        """How many frames there are with something to look at."""
        return sum(text.lstrip().startswith("<iframe") for text in self.html)

    @property
    def drawings(self) -> int:
        """How many figures there are, alone or in a card, besides those in frames."""
        return sum(text.count("<svg") for text in self.html if not text.lstrip().startswith("<iframe"))

    def complaints(self) -> list[str]:
        """Errors and everything that was written to stderr, by cell."""
        return [
            f"{name}: {output.get('evalue', output.get('text'))}"
            for name, cell in self.cells.items()
            for output in cell.outputs
            if output.output_type == "error" or output.get("name") == "stderr"
        ]


def _text(output: NotebookNode) -> str:
    if output.output_type == "stream":
        return output.text
    data = output.get("data", {})
    page = data.get("text/html", "")
    if page and not page.lstrip().startswith("<iframe"):
        bare = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
        return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", bare)))
    return data.get("text/plain", "")

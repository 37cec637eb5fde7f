"""All pages of docs/ that are generated."""

from pathlib import Path

from docs_build import comparison_figures, numbers_page, task_pages

DOCS = Path(__file__).parents[1] / "docs"


def pages() -> dict[str, str]:
    """Return the text of every generated page, by its place in docs/."""
    tasks = {f"tasks/{name}": text for name, text in task_pages.pages().items()}
    return {"numbers.md": numbers_page.page(), "comparison.md": comparison_figures.page(), **tasks}

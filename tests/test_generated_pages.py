"""Pages of the docs that `python -m docs_build` makes are what they are made from."""

import re
from pathlib import Path

import pytest

from docs_build.markdown import law
from docs_build.pages import DOCS, pages
from imir_lens.tasks.registry import BUILT_IN, OF_VECTORS

NUMBER = re.compile(r"[+-]?\d+\.\d+(?:e[+-]?\d+)?")


@pytest.fixture(scope="module")
def made():
    return pages()


def same(first: str, second: str) -> bool:
    """Equal words, and numbers as near as two machines compute them."""
    numbers = [[float(number) for number in NUMBER.findall(text)] for text in (first, second)]
    return NUMBER.split(first) == NUMBER.split(second) and numbers[0] == pytest.approx(numbers[1], rel=0.02, abs=1e-6)


NAMES = sorted(
    str(path.relative_to(DOCS))
    for path in [*(DOCS / "tasks").glob("*.md"), DOCS / "numbers.md", DOCS / "comparison.md"]
)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_what_it_is_made_from(name, made):
    assert name in made, f"docs/{name} is no longer made: remove it"
    assert same((DOCS / name).read_text(encoding="utf-8"), made[name]), "run `python -m docs_build`"


def test_every_task_has_its_page(made):
    assert set(made) == set(NAMES), "run `python -m docs_build`"
    assert {f"tasks/{name}.md" for name in [*BUILT_IN, *OF_VECTORS]} <= set(made)


def test_a_changed_page_is_noticed(made):
    page = made["tasks/recall.md"]
    assert same(page, page.replace("4.143", "4.144"))
    assert not same(page, page.replace("4.143", "5.143"))
    assert not same(page, page.replace("alpha", "beta", 1))


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_task_page_has_every_section(name, made):
    page = made[f"tasks/{name}.md"]
    sections = re.findall(r"^## (.*)$", page, re.MULTILINE)
    wanted = [
        "The law",
        "What a context looks like",
        "Knobs",
        "The Bayes predictor",
        "The reference circuit",
        "Symmetry",
    ]
    assert sections[:7] == [*wanted, "What a trained model does"]
    assert "Attributes:" not in page
    assert "Raises:" not in page


def test_a_docstring_keeps_what_stands_between_its_sections():
    text = "First.\n\nAttributes:\n    one: is\n        long.\n\nBetween.\n\nRaises:\n    TaskError: always.\n"
    assert law(text) == "First.\n\nBetween."


def test_the_stored_results_are_all_on_the_page_of_numbers(made):
    stored = {path.stem for path in (Path(DOCS).parent / "benchmarks" / "results").glob("*.json")}
    rows = set(re.findall(r"^\| (\w+) \|", made["numbers.md"], re.MULTILINE))
    assert stored <= rows

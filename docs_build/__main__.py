"""`python -m docs_build` writes the generated pages of the docs; a test compares them with what it would write."""

from docs_build.pages import DOCS, pages

if __name__ == "__main__":
    for name, text in pages().items():
        (DOCS / name).parent.mkdir(exist_ok=True)
        (DOCS / name).write_text(text, encoding="utf-8")

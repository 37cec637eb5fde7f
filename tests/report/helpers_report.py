"""What the report's tests share: a hostile report, and a page taken apart."""

from html.parser import HTMLParser
from typing import Any

from sample_report import sample_report

HOSTILE = "<script>alert(1)</script>"
BREAKOUT = "</script><script>document.title='owned'</script>\"'><img src=x onerror=\"document.title='owned'\">"


def hostile_report() -> dict[str, Any]:
    """A report in which every free string tries to become markup."""
    report = sample_report("recall")
    attack = f"{HOSTILE}{BREAKOUT}"
    report["command"] = report["ablation"] = attack
    report["created_with"] = {"imir_lens": attack, "transformer_lens": attack, "torch": attack}
    report["model"] |= {"source": attack, "family": attack, "positions": attack, "normalization": attack}
    report["task"] = {"name": attack, "knobs": {attack: attack}}
    report["verdict"] |= {"evidence_level": attack, "text": attack, "caveats": [attack]}
    report["heads"][0]["labels"] = [attack]
    for unit in report["circuit"]["units"][1:2]:
        unit |= {"id": HOSTILE, "words": attack}
    report["circuit"]["roles"][0]["units"] = [HOSTILE]
    report["coordinates"][0]["id"] = attack
    for example in report["examples"]:
        example["tokens"][0:3] = [HOSTILE, BREAKOUT, "<bos>"]
        example |= {"target": HOSTILE, "prediction": BREAKOUT}
    return report


class Page(HTMLParser):
    """The elements of a page with their attributes, its visible text, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.text += data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)

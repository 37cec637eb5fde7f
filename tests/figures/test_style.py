import xml.etree.ElementTree as ET

import pytest

from imir_lens.figures import style
from imir_lens.figures.figure import standalone


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (13.24, "13.2"),
        (9.999, "10.0"),
        (0.0101, "0.0101"),
        (0.99951, "1.00"),
        (286.0, "286"),
        (12345.0, "12,300"),
        (4.8e-6, "4.80e\N{MINUS SIGN}6"),
        (1234567.0, "1.23e6"),
        (-2.04, "\N{MINUS SIGN}2.04"),
    ],
)
def test_numbers_have_three_significant_digits(value, text):
    assert style.number(value) == text


def _luminance(colour: str) -> float:
    channels = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_in_every_role_colour_can_be_read_on_its_page(theme):
    page = _luminance(style.THEMES[theme]["page"])
    colours = {**style.ROLE_COLOURS[theme], "muted": style.THEMES[theme]["muted"]}
    for name, colour in colours.items():
        high, low = sorted((page, _luminance(colour)), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, name


def test_every_role_has_a_sign_and_a_class():
    assert style.role_symbol("gamma_12") == "\N{GREEK SMALL LETTER GAMMA}₁₂"
    assert style.role_class("beta_1") == "r-beta"
    assert style.role_class("<unknown>") == "r-auxiliary"


def test_blanks_and_control_characters_take_a_place():
    assert style.visible("\t a\x07") == "⇥·a\\u0007"
    assert style.printable("a\x07\n") == "a\\u0007\n"
    assert style.markup('<a href="x">') == "&lt;a href=&quot;x&quot;&gt;"


def test_long_texts_lose_their_middle():
    assert style.shorten("abcdefghij", 7) == "abc…hij"
    assert style.shorten("abc", 7) == "abc"
    assert len(style.shorten("x" * 99, 20)) == 20


def test_a_drawing_becomes_a_file_of_its_own():
    drawing = style.svg(10, 20, "<g/>", name="n", title="<T>", description="D\x00")
    root = ET.fromstring(standalone(drawing).split("\n", 1)[1])
    assert root.get("viewBox") == "0 0 10 20"
    assert [child.tag.rpartition("}")[2] for child in root] == ["title", "desc", "style", "rect", "g"]
    assert root[0].text == "<T>"
    assert "prefers-color-scheme:dark" in root[2].text

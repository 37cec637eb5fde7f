"""What the commands share."""

import os
import subprocess

import pytest

from imir_lens.commands.shared import on_one_line, parse_fields
from imir_lens.errors import OptionError


def test_model_settings_are_typed():
    given = ["n_heads=2", "eps=1e-5", "attn_only=True", "normalization_type=none", "act_fn=gelu", "name=a=b"]
    expected = {
        "n_heads": 2,
        "eps": 1e-5,
        "attn_only": True,
        "normalization_type": None,
        "act_fn": "gelu",
        "name": "a=b",
    }
    found = parse_fields(given)
    assert found == expected
    assert [type(value) for value in found.values()] == [type(value) for value in expected.values()]
    assert parse_fields(["n_layers=" + "9" * 5000]) == {"n_layers": "9" * 5000}  # text: no number that Python reads
    for text in ("n_heads", "=2", "n_heads="):
        with pytest.raises(OptionError, match="FIELD=VALUE"):
            parse_fields([text])


@pytest.mark.parametrize(
    "word",
    [
        "plain.pt",
        "two words",
        "it's",
        "line\nbreak's \\n.pt",
        "\x1b[31m",
        "tab\tb",
        "naïve→",
        "\n",
        "undecodable\udcff",
    ],
)
def test_a_quoted_word_is_one_line_that_a_shell_reads_back(word):
    quoted = on_one_line(word)
    assert quoted.isprintable()
    found = subprocess.run(["bash", "-c", f"printf %s {quoted}"], capture_output=True, check=True).stdout
    assert found == os.fsencode(word)
    assert on_one_line("plain.pt") == "plain.pt"

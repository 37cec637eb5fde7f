"""What the commands share."""

import pytest

from imir_lens.commands.shared import parse_fields
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
    for text in ("n_heads", "=2", "n_heads="):
        with pytest.raises(OptionError, match="FIELD=VALUE"):
            parse_fields([text])

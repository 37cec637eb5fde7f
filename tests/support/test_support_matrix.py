"""The page of what is supported says what is measured here."""

from pathlib import Path

import pytest
from support_matrix import COLUMNS, FEATURES, documented, measured

pytestmark = pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated")


@pytest.mark.parametrize("feature", FEATURES)
def test_the_page_says_what_is_measured(feature: str, tmp_path: Path) -> None:
    found = measured(feature, tmp_path)
    written = documented()[feature]
    assert set(written.values()) <= {"exact", "approximate", "refused", "none"}
    assert {column: written[column] for column in found} == found
    assert len(found) >= 3


def test_the_page_has_all_three_kinds_of_entries() -> None:
    table = documented()
    assert list(table) == list(FEATURES)
    kinds = {row[column] for row in table.values() for column in COLUMNS}
    assert kinds == {"exact", "approximate", "refused", "none"}
    assert table["attention only, learned positions"] == dict.fromkeys(COLUMNS, "exact")

import re

from imir_lens.figures.head_map import head_maps


def atlas(n_layers: int, n_heads: int, value: float) -> dict:
    score = {"z": value}
    heads = [
        {"layer": layer, "index": index, "previous_token": score, "same": score, "same_copied": score, "copying": score}
        for layer in range(n_layers)
        for index in range(n_heads)
    ]
    return {"data": None, "model": {"n_layers": n_layers, "n_heads": n_heads}, "heads": heads}


def squares(drawing: str) -> int:
    return sum(path.count("M") for path in re.findall(r'class="cell"[^>]* d="([^"]*)"', drawing))


def test_every_head_has_its_square_in_each_of_four_maps():
    assert squares(head_maps(atlas(3, 2, 1.0))) == 4 * 6
    assert squares(head_maps(atlas(30, 9, 2.5))) == 4 * 270


def test_what_is_not_above_zero_is_blank():
    assert squares(head_maps(atlas(3, 2, -1.0))) == 0
    assert squares(head_maps(atlas(3, 2, 0.0))) == 0

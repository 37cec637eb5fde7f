"""Local attention: who sees whom."""

from dataclasses import replace

import pytest
import torch
from small_models import LOCAL, PLAIN, build, tokens

from imir_lens.models.config import TransformerConfig
from imir_lens.models.local import hidden_outside


@pytest.mark.parametrize("window_size", [1, 3, 6, 9])
def test_a_query_sees_as_many_keys_as_the_window_holds(window_size):
    hidden = hidden_outside(~torch.ones(6, 6, dtype=torch.bool).tril(), window_size)
    for query in range(6):
        seen = [key for key in range(6) if not hidden[query, key]]
        assert seen == list(range(max(0, query - window_size + 1), query + 1))


def test_local_layers_alone_have_the_window():
    _, cache = build(LOCAL).run_with_cache(tokens())
    causal = torch.ones(7, 7, dtype=torch.bool).tril()
    assert torch.equal(cache["pattern", 0][0, 0] > 0, causal)
    assert torch.equal(cache["pattern", 1][0, 0] > 0, causal.triu(-2))


def test_a_token_out_of_every_window_changes_nothing():
    model = build(replace(LOCAL, attn_types=("local", "local")))
    changed = tokens()
    changed[:, 0] = (changed[:, 0] + 1) % 10
    # Two layers of three keys each reach four positions back.
    assert torch.equal(model(tokens())[:, 5:], model(changed)[:, 5:])
    assert not torch.allclose(model(tokens())[:, 4], model(changed)[:, 4], atol=1e-3)


def test_a_wide_window_and_global_layers_change_nothing():
    plain = build(PLAIN)(tokens())
    for same in (replace(LOCAL, window_size=12), replace(LOCAL, attn_types=("global", "global", "local"))):
        assert torch.equal(build(same)(tokens()), plain)
    assert not torch.allclose(build(LOCAL)(tokens()), plain, atol=1e-3)


def test_local_layers_rotate_with_a_base_of_their_own():
    rotary = replace(LOCAL, positional_embedding_type="rotary")
    plain, other = (build(replace(rotary, rotary_base_local=base)).run_with_cache(tokens())[1] for base in (None, 10.0))
    assert torch.equal(plain["rot_q", 0], other["rot_q", 0])
    rotated = torch.stack([cache["rot_q", 1][:, 3] - cache["q", 1][:, 3] for cache in (plain, other)])
    assert not torch.allclose(rotated[0], rotated[1], atol=1e-2)


def test_a_window_in_the_cfg_is_read_from_a_list():
    config = TransformerConfig.from_dict({**LOCAL.to_dict(), "attn_types": ["global", "local"]})
    assert config == LOCAL
    assert [config.is_local(layer) for layer in range(2)] == [False, True]

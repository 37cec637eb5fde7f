import io

from rich.console import Console

from imir_lens.training.progress import progress_bar


def test_the_bar_shows_the_step_and_the_last_score():
    out = io.StringIO()
    with progress_bar(40, console=Console(file=out, width=120, force_terminal=True)) as show:
        show(40, {"step": 40, "loss": 0.1234, "accuracy": 0.5})
    assert "step 40/40" in out.getvalue()
    assert "loss 0.1234" in out.getvalue()
    assert "accuracy 0.500" in out.getvalue()

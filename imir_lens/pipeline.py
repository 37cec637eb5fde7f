"""`analyze`: from a checkpoint, or a live model, to its report."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from imir_lens.analysis import BOOTSTRAPS, run_analysis
from imir_lens.checkpoints import checkpoint_series
from imir_lens.dynamics.trajectory_pipeline import trajectory
from imir_lens.errors import OptionError
from imir_lens.lens_model import LensModel, open_model
from imir_lens.model_vocabulary import ModelInVocabulary
from imir_lens.report.build import report_data
from imir_lens.report.document import Report
from imir_lens.tasks import make_task
from imir_lens.tasks.base import Task
from imir_lens.token_texts import tokenizer_of
from imir_lens.vocabulary import TaskVocabulary, choose_vocabulary


def analyze(
    model: nn.Module | str | Path,
    task: Task | str,
    *,
    knobs: Mapping[str, Any] | None = None,
    config: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    vocabulary: TaskVocabulary | str | Path | None = None,
    filler: int | None = None,
    tokenizer: str | Path | None = None,
    contexts: int = 512,
    budget: float = 0.01,
    seed: int = 0,
    bootstraps: int = BOOTSTRAPS,
    along_training: bool = False,
    device: str | None = None,
    command: str | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> Report:
    """Find out how a model does a task.

    Args:
        model: a checkpoint path, an ImirTransformer, a DisentangledTransformer, a HookedTransformer (TransformerLens 3)
            or a native TransformerBridge (TransformerLens 4).
        task: a task, or the name of one.
        knobs: knobs of a task given by name.
        config: for a path without a config: a JSON file.
        overrides: for a path: single config fields.
        vocabulary: which of the model's tokens stand for the task's, where the model has more: `random`, a file of
            words or of ids, or a TaskVocabulary. By default, the task's tokens are the model's.
        filler: for a vocabulary that is random or a file: the token for the task's filler; see `choose_vocabulary`.
        tokenizer: likewise: a `tokenizer.json` or `.gguf` with the tokens' texts. For a path, one is looked for there.
        contexts: number of test contexts.
        budget: share of the loss gap that the circuit may give up.
        seed: of all contexts.
        bootstraps: number of bootstrap searches behind the stability figure.
        along_training: of a path to a run of training: follow its checkpoints as well, see `trajectory`.
        device: where to run.
        command: what to print in the report as its origin (default: this call).
        progress: called with the name of each step.

    Returns:
        The report: `report.verdict`, `report.units`, `report.save(directory)`.

    Raises:
        ImirError: of the kind that names the fault; see `open_model`, `make_task` and `run_analysis`.
    """
    if along_training:
        if vocabulary is not None or not isinstance(model, str | Path):
            raise OptionError("along_training follows the checkpoints of a run: give its path, and no vocabulary")
        checkpoint_series(model)  # refused before any work is done
    resolved = make_task(task, **dict(knobs or {})) if isinstance(task, str) else task
    opened = open_model(model, config=config, overrides=overrides, device=device)
    if vocabulary is not None:
        beside = tokenizer_of(model) if tokenizer is None and isinstance(model, str | Path) else tokenizer
        opened = _in_vocabulary(opened, resolved, vocabulary, filler=filler, tokenizer=beside, seed=seed)
    elif filler is not None or tokenizer is not None:
        raise OptionError("filler and tokenizer say which tokens stand for the task's: give the vocabulary as well")
    analysis = run_analysis(
        opened, resolved, contexts=contexts, budget=budget, seed=seed, bootstraps=bootstraps, progress=progress
    )
    settings = "".join(f", {name}={value!r}" for name, value in resolved.knobs.items())
    call = (
        f"imir_lens.analyze({opened.info['source']!r}, make_task({resolved.name!r}{settings}), "
        f"{_tokens_of_call(vocabulary, filler, tokenizer)}"
        f"contexts={contexts}, budget={budget}, seed={seed}, bootstraps={bootstraps})"
    )
    data = report_data(analysis, command=command or call)
    if along_training:
        progress("follow the checkpoints")
        followed = trajectory(
            str(model),
            resolved,
            config=config,
            overrides=overrides,
            contexts=contexts,
            budget=budget,
            seed=seed,
            device=device,
            command=command or call,
        )
        data["trajectory"] = followed.data
    return Report(data, coordinates=analysis.circuit.coordinates)


def _in_vocabulary(
    model: LensModel,
    task: Task,
    vocabulary: TaskVocabulary | str | Path,
    *,
    filler: int | None,
    tokenizer: str | Path | None,
    seed: int,
) -> ModelInVocabulary:
    if not isinstance(vocabulary, TaskVocabulary):
        size = model.weights.d_vocab
        vocabulary = choose_vocabulary(vocabulary, task, size, filler=filler, tokenizer=tokenizer, seed=seed)
    elif filler is not None:
        raise OptionError("a TaskVocabulary has its own filler: leave out the other one")
    return ModelInVocabulary(model, vocabulary)


def _tokens_of_call(
    vocabulary: TaskVocabulary | str | Path | None, filler: int | None, tokenizer: str | Path | None
) -> str:
    if isinstance(vocabulary, TaskVocabulary):
        return "vocabulary=…, "
    given = {"vocabulary": vocabulary, "filler": filler, "tokenizer": tokenizer}
    texts = ((name, str(value) if isinstance(value, Path) else value) for name, value in given.items())
    return "".join(f"{name}={value!r}, " for name, value in texts if value is not None)

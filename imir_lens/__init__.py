"""Which mechanism a transformer uses, and how sure that is.

The public names below are loaded on first use; importing this package imports nothing heavy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from imir_lens.ablation import ablate
    from imir_lens.atlas.pipeline import heads_atlas
    from imir_lens.checkpoints import checkpoint_series, load_checkpoint, load_transformer, save_checkpoint
    from imir_lens.coordinates import Coordinates
    from imir_lens.detection import Circuit, detect
    from imir_lens.dynamics.trajectory_pipeline import trajectory
    from imir_lens.dynamics.trajectory_seeds import trajectories
    from imir_lens.errors import ImirError
    from imir_lens.figures.figure import Figure
    from imir_lens.ids import CoordinateId
    from imir_lens.lens_model import LensModel, open_model
    from imir_lens.models.config import TransformerConfig
    from imir_lens.models.disentangled import DisentangledTransformer
    from imir_lens.models.disentangled_config import DisentangledConfig
    from imir_lens.models.transformer import ImirTransformer
    from imir_lens.pipeline import analyze
    from imir_lens.projector import ImirProjector
    from imir_lens.report.atlas_document import Atlas
    from imir_lens.report.comparison_build import compare
    from imir_lens.report.comparison_document import Comparison
    from imir_lens.report.document import Report
    from imir_lens.report.trajectory_document import Trajectory
    from imir_lens.report.verification_document import VerificationReport
    from imir_lens.shown_attention import attention
    from imir_lens.sources.conversion import convert_checkpoint
    from imir_lens.surrogate import Surrogate
    from imir_lens.tasks.base import Batch, Task
    from imir_lens.tasks.registry import make_task, task_names
    from imir_lens.training.loop import train
    from imir_lens.verification import verify
    from imir_lens.weights import CircuitWeights

__version__ = "0.1.0"

__all__ = [
    "Atlas",
    "Batch",
    "Circuit",
    "CircuitWeights",
    "Comparison",
    "CoordinateId",
    "Coordinates",
    "DisentangledConfig",
    "DisentangledTransformer",
    "Figure",
    "ImirError",
    "ImirProjector",
    "ImirTransformer",
    "LensModel",
    "Report",
    "Surrogate",
    "Task",
    "Trajectory",
    "TransformerConfig",
    "VerificationReport",
    "ablate",
    "analyze",
    "attention",
    "checkpoint_series",
    "compare",
    "convert_checkpoint",
    "detect",
    "heads_atlas",
    "load_checkpoint",
    "load_transformer",
    "make_task",
    "open_model",
    "save_checkpoint",
    "task_names",
    "train",
    "trajectories",
    "trajectory",
    "verify",
]

_HOMES = {
    "Atlas": "report.atlas_document",
    "Batch": "tasks.base",
    "Circuit": "detection",
    "CircuitWeights": "weights",
    "Comparison": "report.comparison_document",
    "CoordinateId": "ids",
    "Coordinates": "coordinates",
    "DisentangledConfig": "models.disentangled_config",
    "DisentangledTransformer": "models.disentangled",
    "Figure": "figures.figure",
    "ImirError": "errors",
    "ImirProjector": "projector",
    "ImirTransformer": "models.transformer",
    "LensModel": "lens_model",
    "Report": "report.document",
    "Surrogate": "surrogate",
    "Task": "tasks.base",
    "Trajectory": "report.trajectory_document",
    "TransformerConfig": "models.config",
    "VerificationReport": "report.verification_document",
    "ablate": "ablation",
    "analyze": "pipeline",
    "attention": "shown_attention",
    "checkpoint_series": "checkpoints",
    "compare": "report.comparison_build",
    "convert_checkpoint": "sources.conversion",
    "detect": "detection",
    "heads_atlas": "atlas.pipeline",
    "load_checkpoint": "checkpoints",
    "load_transformer": "checkpoints",
    "make_task": "tasks.registry",
    "open_model": "lens_model",
    "save_checkpoint": "checkpoints",
    "task_names": "tasks.registry",
    "train": "training.loop",
    "trajectories": "dynamics.trajectory_seeds",
    "trajectory": "dynamics.trajectory_pipeline",
    "verify": "verification",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value  # found at once from now on
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

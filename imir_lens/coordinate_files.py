"""Coordinates on disk: one safetensors file that holds the numbers and everything needed to name them."""

import json
from dataclasses import asdict
from pathlib import Path as FilePath

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from imir_lens.attention_form import AttentionForm
from imir_lens.coordinates import Coordinates, CoordinateSpace
from imir_lens.errors import CoordinateError, ImirError
from imir_lens.ids import Path
from imir_lens.paths import PathTable
from imir_lens.relations import TokenRelations
from imir_lens.stream_scales import StreamScales

_FORMAT = "imir-lens/coordinates/1"


def save_coordinates(path: FilePath | str, coordinates: Coordinates) -> None:
    """Write coordinates to a `.safetensors` file."""
    space = coordinates.space
    tensors = {"values": coordinates.values.cpu().contiguous()}
    tensors |= {f"class/{name}": ids.contiguous() for name, ids in space.relations.classes.items()}
    tensors |= {f"matching/{name}": partner.contiguous() for name, partner in space.relations.matchings.items()}
    shape = {
        "format": _FORMAT,
        "n_layers": space.paths.n_layers,
        "n_heads": space.paths.n_heads,
        "n_positions": space.n_positions,
        "query_positions": space.query_positions,
        "paths": list(map(str, space.paths.paths)),
        "classes": list(space.relations.classes),
        "matchings": list(space.relations.matchings),
        "reference": space.relations.reference,
        "form": asdict(space.form),
        "scales": None if space.scales is None else space.scales.to_dict(),
    }
    data = save({name: tensor.clone() for name, tensor in tensors.items()}, {"coordinates": json.dumps(shape)})
    FilePath(path).write_bytes(data)  # `save_file` would make it private to the user


def load_coordinates(path: FilePath | str) -> Coordinates:
    """Read a file written by `save_coordinates`.

    Raises:
        CoordinateError: when the file is missing, damaged, or something else.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        shape = json.loads(metadata["coordinates"])
        relations = TokenRelations(
            {name: tensors[f"class/{name}"] for name in shape["classes"]},
            {name: tensors[f"matching/{name}"] for name in shape["matchings"]},
            shape["reference"],
        )
        table = PathTable(shape["n_layers"], shape["n_heads"], tuple(Path.parse(text) for text in shape["paths"]))
        queries = shape["query_positions"]
        # Files of before there were forms are of models that are nothing but products of weights.
        form, scales = shape.get("form"), shape.get("scales")
        space = CoordinateSpace(
            table,
            relations,
            shape["n_positions"],
            None if queries is None else tuple(queries),
            form=None if form is None else AttentionForm.from_dict(form),
            scales=None if scales is None else StreamScales.from_dict(scales),
        )
        return Coordinates(space, tensors["values"])
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, ImirError) as error:
        reason = str(error).splitlines()[0]
        raise CoordinateError(
            f"{path} is not a coordinates file ({type(error).__name__}: {reason}): expected coordinates.safetensors "
            "from a report directory"
        ) from error

"""`imir-lens convert`: a model of any format as a HookedTransformer-format file."""

from pathlib import Path

import click

from imir_lens.commands.shared import PLACE, Output, command, model_option, parse_fields


@click.command()
@click.argument("source", type=PLACE)
@click.option("--out", type=PLACE, metavar="DIR", required=True, help="Where model.safetensors and config.json go.")
@click.option("--config", type=PLACE, metavar="FILE", help="The model's config as a JSON file.")
@click.option("--names", metavar="MAP", help="Names of a plain PyTorch model: a JSON file, nanogpt, mingpt, …")
@model_option
@click.option("--dtype", metavar="TYPE", help="float32, float64, bfloat16 or float16.  [default: the source's config]")
@click.option("--force", is_flag=True, help="Replace an older model in DIR.")
@command
def convert(
    source: Path,
    out: Path,
    config: Path | None,
    names: str | None,
    fields: tuple[str, ...],
    dtype: str | None,
    force: bool,
    say: Output,
    device: str | None,
) -> None:
    """Write SOURCE as model.safetensors and config.json in HookedTransformer's format.

    SOURCE is a Hugging Face directory (GPT-2, GPT-NeoX, Llama, Mistral), a .gguf file, a nanoGPT or minGPT checkpoint,
    a plain PyTorch state dict with a map of its names, or anything that `imir-lens analyze` reads. The written file is
    loaded again and its logits are compared with the source's. Nothing in SOURCE is executed, and no network is used.
    """
    overrides = parse_fields(fields)
    from imir_lens.report.storage import check_output

    check_output(out, force=force)
    from imir_lens.sources.conversion import convert_checkpoint

    done = convert_checkpoint(
        source,
        out,
        config=config,
        overrides=overrides,
        names=names,
        dtype=dtype,
        device=device,
        progress=lambda step: say.note(f"{step} …"),
    )
    shape = done.config
    data = {
        "model": str(done.path),
        "config": str(done.path.parent / "config.json"),
        "source": str(source),
        "sha256": done.sha256,
        "difference": done.difference,
        "largest_logit": done.largest_logit,
        "compared_with": done.compared_with,
    }
    size = f"{shape.n_layers} layers, {shape.n_heads} heads, d_model {shape.d_model}, vocabulary {shape.d_vocab:,}"
    lines = [
        f"model      {done.path}",
        f"shape      {size}, contexts of {shape.n_ctx:,}",
        f"checked    logits differ by {done.difference:.2g} at most (largest {done.largest_logit:.3g}) from those by "
        f"{done.compared_with}",
    ]
    say.result(data, lines)

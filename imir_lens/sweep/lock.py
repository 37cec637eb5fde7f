"""One sweep a directory at a time."""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from imir_lens.errors import OptionError

LOCK = "sweep.lock"


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep a directory for this process while the block runs.

    The lock is a file that names its owner, made by a hard link: that is atomic on network drives too. One whose owner
    on this machine is dead is taken away.

    Raises:
        OptionError: when another sweep has it.
    """
    file = directory / LOCK
    own = directory / f".{LOCK}.{socket.gethostname()}.{os.getpid()}"
    try:
        own.write_text(json.dumps({"host": socket.gethostname(), "process": os.getpid(), "since": time.ctime()}))
        try:
            _take(file, own)
        finally:
            own.unlink()
    except OSError as error:
        raise OptionError(f"{directory} cannot be locked: {error.strerror}") from error
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def _take(file: Path, own: Path) -> None:
    for _ in range(2):
        try:
            return os.link(own, file)
        except FileExistsError:
            _clear(file, own)
    raise OptionError(f"{file.parent} is in use by another sweep: wait for it, or use another directory")


def _clear(file: Path, own: Path) -> None:
    """Take a dead process's lock away."""
    try:
        text = file.read_text()
        owner = json.loads(text)
        host, process, since = owner["host"], int(owner["process"]), owner["since"]
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError) as error:
        raise OptionError(f"{file} is not the lock of a sweep: delete it if no sweep is running") from error
    if host != socket.gethostname() or _lives(process):
        raise OptionError(
            f"{file.parent} is in use by process {process} on {host} since {since}: wait for it, or delete {file} if "
            "that process is no more"
        )
    # Two may find the same dead owner: a rename succeeds for one, and what it moved must still be the dead one's.
    taken = own.with_name(own.name + ".old")
    try:
        os.rename(file, taken)
    except FileNotFoundError:
        return
    if taken.read_text() != text:
        os.link(taken, file)
    taken.unlink()


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

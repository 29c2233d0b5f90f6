"""Run a command: signals, warnings, and errors as sentences."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import re
import signal
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType


def run() -> str | int | None:
    """Run the command of this process; return its exit code."""
    atexit.register(gc.freeze)  # Python would look for garbage before it ends, which takes a second with torch
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller has closed it
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    code = _run()
    try:
        sys.stdout.flush()
    except OSError as error:  # standard output cannot be written
        code = _report(f"Standard output cannot be written: {error.strerror}.")
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # what is left is dropped; Python would print a traceback at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return code


def _run() -> str | int | None:
    """Run a command; return its exit code."""
    from tagfill.cli.app import app
    from tagfill.errors import TagfillError

    try:
        with _signals_and_warnings():
            app(prog_name="tagfill")
    except SystemExit as end:
        return end.code
    except TagfillError as error:
        names = _flags(sys.argv[1:3])
        sentence = name_flags(str(error), names)
        if any(word in _COMMANDS_OF_FORMATS for word in sys.argv[1:2]):
            sentence = name_options(sentence, _format_options())
        return _report(sentence)
    except OSError as error:
        if error.errno not in _OUTSIDE:
            raise
        return _report(_describe_os_error(error))
    return 0


# errors whose cause is the machine, not a fault of Tagfill
_OUTSIDE = frozenset(
    {
        errno.EACCES,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EIO,
        errno.EISDIR,
        errno.ELOOP,
        errno.EMFILE,
        errno.ENAMETOOLONG,
        errno.ENFILE,
        errno.ENOENT,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.ENOTDIR,
        errno.ENXIO,
        errno.EPERM,
        errno.EROFS,
    }
)


def _describe_os_error(error: OSError) -> str:
    """A sentence about a file that cannot be read or written.

    >>> _describe_os_error(OSError(28, "No space left on device", "runs/a/best"))
    'runs/a/best cannot be written or read: No space left on device.'
    """
    from tagfill.errors import TagfillError
    from tagfill.io import cache_folder

    reason = os.strerror(error.errno or 0)
    if error.filename is None:
        return f"Standard output or a file cannot be written: {reason}."
    path, hint = os.fsdecode(error.filename), ""
    try:
        if Path(path).is_relative_to(cache_folder()):
            hint = "; it is in the cache, set TAGFILL_CACHE to another folder"
    except TagfillError:
        pass
    return f"{path} cannot be written or read: {reason}{hint}."


def _report(sentence: str) -> int:
    """Write an error to standard error; return the exit code."""
    with suppress(OSError):
        sys.stderr.write(f"Error: {printable(sentence)}\n")
        sys.stderr.flush()
    return 2


@contextmanager
def _signals_and_warnings() -> Iterator[None]:
    """While a command runs, SIGTERM ends it as Ctrl-C does, and warnings are sentences."""
    process = os.getpid()

    def terminate(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        if os.getpid() != process:  # a forked worker
            os.kill(os.getpid(), number)
        raise KeyboardInterrupt

    handler, formatter = signal.signal(signal.SIGTERM, terminate), warnings.formatwarning
    warnings.formatwarning = _format_warning
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
        warnings.formatwarning = formatter


def _format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning as one line: its sentence, without the place in the code that gave it."""
    return f"Warning: {printable(str(message))}\n"


# C0 and C1 controls, marks that reorder the text around them, line separators, lone surrogates
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, *, keep: str = "\n\t", escape: str = "") -> str:
    r"""Show control characters of a text as escapes, so that names from data cannot control the terminal.

    Args:
        text: may contain names of images, classes and files.
        keep: control characters that stay.
        escape: form of every escape, such as `\u{:04x}`; by default that of Python.

    >>> printable("cat\x1b[2J")
    'cat\\x1b[2J'
    """

    def shown(found: re.Match[str]) -> str:
        if found[0] in keep:
            return found[0]
        return escape.format(ord(found[0])) if escape else found[0].encode("unicode_escape").decode()

    return _CONTROLS.sub(shown, text)


def name_flags(sentence: str, names: Iterable[str]) -> str:
    """Replace Python's names of options in an error by the flags of the command.

    Args:
        sentence: the error.
        names: of the command's parameters.

    >>> name_flags("7 images are bad, more than max_bad_images allows.", ["max_bad_images"])
    '7 images are bad, more than --max-bad-images allows.'
    >>> name_flags("order is 'odd'; give one of a, b.", ["order"])
    "--order is 'odd'; give one of a, b."
    >>> name_flags("Choose absent_means='unknown'.", ["absent_means"])
    'Choose --absent-means unknown.'
    >>> name_flags("It is not clear; give separator=';'.", ["option"])
    "It is not clear; give --option separator=';'."
    """
    names = list(names)
    for name in names:
        flag = f"--{name.replace('_', '-')}"
        word = rf"(?<![\w.-]){name}"
        sentence = re.sub(rf"^{name} is '", f"{flag} is '", sentence)
        sentence = re.sub(rf"{word}=['\"]?(\w+)['\"]?", rf"{flag} \1", sentence)
        if "_" in name:
            sentence = re.sub(rf"{word}(?![\w=])", flag, sentence)
    if "option" in names:
        sentence = _OPTION_OF_TABLES.sub(r"--option \1=", sentence)
    return sentence


# options of formats, as errors about tables name them
_OPTION_OF_TABLES = re.compile(
    r"(?<![\w./-])"
    r"((?:image|tag|value|split|complete)_column|class_columns|separator|delimiter|coding|classes|undecided)="
)


def name_options(sentence: str, names: Iterable[str]) -> str:
    """Say how options of formats are given on the command line.

    Args:
        sentence: the error.
        names: of the options.

    >>> name_options("It has no column 'label'; name the right one with label_column=.", ["label_column"])
    "It has no column 'label'; name the right one with --option label_column=."
    >>> name_options("Name it in ignore=['note'].", ["ignore"])
    'Name it in --option ignore=note.'
    >>> name_options("Name the root with root=.", ["root"])
    'Name the root with --photos.'
    """
    sentence = re.sub(r"(?<![\w.-])root=", "--photos", sentence)
    words = "|".join(sorted(names, key=len, reverse=True))
    sentence = re.sub(rf"(?<![\w.-])(?<!--option )({words})=", r"--option \1=", sentence)
    return re.sub(r"(--option \w+)=\['([^']*)'\]", r"\1=\2", sentence)


_COMMANDS_OF_FORMATS = ("import", "fill", "write")  # whose --option may be one of a format


def _format_options() -> set[str]:
    """Names of the options of all formats."""
    from tagfill import formats
    from tagfill.options import option_parameters

    found = [formats.get(name) for name in formats.FORMATS]
    functions = [*(each.read for each in found), *(each.write for each in found if hasattr(each, "write"))]
    return {option for function in functions for option in option_parameters(function)}


def _flags(command: list[str]) -> list[str]:
    """Names of the parameters of a command that are flags."""
    from typer.main import get_command

    from tagfill.cli.app import app

    known = getattr(get_command(app), "commands", {})
    found = known.get(command[0]) if command else None
    if found is None:
        return []
    found = getattr(found, "commands", {}).get(command[-1], found)  # of a group such as `evidence`
    texts = [text for parameter in found.params for text in parameter.opts if text.startswith("--")]
    return [text.removeprefix("--").replace("-", "_") for text in texts if text != "--set"]

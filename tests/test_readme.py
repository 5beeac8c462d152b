"""The code in README.md and docs/ runs, and prints what the documents say.

Python blocks that begin with a comment such as `# hello.py` become files, others run as they are.
Of console blocks, the lines after `$` are started and what they print is compared.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from pathlib import Path

import pytest
from launch import mpiexec

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = {"choosing.md": ["journey.md"]}
"""Documents that use the programs of others."""


def blocks(document: Path, language: str) -> Iterator[str]:
    """The code blocks in one language."""
    found = re.findall(rf"^```{language}\n(.*?)^```", document.read_text(), re.M | re.S)
    yield from found


def write_programs(document: Path, folder: Path) -> None:
    for text in blocks(document, "python"):
        if name := re.match(r"# (\w+\.py)\n", text):
            (folder / name[1]).write_text(text)


def run(command: str, folder: Path) -> str:
    """Run `A=1 mpiexec -n 4 python x.py`, or the same without mpiexec; what it prints."""
    words = shlex.split(command)
    environment = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
    words = words[len(environment) :]
    size = int(words[2]) if words[0] == "mpiexec" else 0
    words = words[3:] if size else words
    assert words[0] == "python", command
    full = [str(folder / word) if (folder / word).exists() else word for word in words[1:]]
    if size:
        return mpiexec(size, sys.executable, *full, **environment).stdout
    done = subprocess.run(
        [sys.executable, *full],
        env={**os.environ, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_console_shows_what_is_printed(document: Path, tmp_path: Path) -> None:
    for name in (document.name, *PROGRAMS.get(document.name, ())):
        write_programs(document.with_name(name), tmp_path)
    for text in blocks(document, "console"):
        for command, expected in re.findall(r"^\$ (.*)\n((?:[^$].*\n|\n)*)", text, re.M):
            got = run(command, tmp_path)
            flags = ELLIPSIS | NORMALIZE_WHITESPACE
            assert OutputChecker().check_output(expected, got, flags), f"{command}\n{got}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_python_runs(document: Path, tmp_path: Path) -> None:
    write_programs(document, tmp_path)
    others = [text for text in blocks(document, "python") if not re.match(r"# \w+\.py\n", text)]
    sessions = [text for text in others if text.startswith(">>>")]
    (tmp_path / "session.txt").write_text("\n".join(sessions))
    (tmp_path / "plain.py").write_text("\n\n".join(set(others) - set(sessions)))
    if others:
        run("python plain.py", tmp_path)
        run("python -m doctest -o ELLIPSIS session.txt", tmp_path)

"""MPI errors that say what was wrong."""

from __future__ import annotations

from mpi4py import MPI


class Error(MPI.Exception):
    """An `MPI.Exception` with an error class and a sentence of its own.

    Parameters
    ----------
    code
        The MPI error class, for example `MPI.ERR_ROOT`.
    text
        What was wrong and what would be right.
    """

    def __new__(cls, code: int, text: str) -> Error:
        """Make the exception with the error class alone, as MPI does."""
        made: Error = MPI.Exception.__new__(cls, code)
        return made

    def __init__(self, code: int, text: str) -> None:
        MPI.Exception.__init__(self, code)
        self.text = text

    def __str__(self) -> str:
        return f"{MPI.Exception.__str__(self)}: {self.text}"

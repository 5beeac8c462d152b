"""Every MPI collective, in every algorithm worth knowing, over MPI point-to-point."""

from collx.choose import using
from collx.communicator import Comm, explain
from collx.registry import algorithms as available

__all__ = ["Comm", "available", "explain", "using"]

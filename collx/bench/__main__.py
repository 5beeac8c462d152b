"""The command `python -m collx.bench`, to be run by every rank."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

from mpi4py import MPI

from collx.bench import report
from collx.bench.options import Options, read
from collx.bench.timing import Sweep
from collx.bench.validation import Session, validate


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark on all ranks of the world.

    Returns
    -------
    int
        0 if all is well, 1 if an algorithm is wrong, 2 after wrong usage.
    """
    world = MPI.COMM_WORLD
    options = read(world, arguments)
    if isinstance(options, int):
        return options
    if options.list:
        return list_algorithms(options) if world.Get_rank() == 0 else 0
    try:
        return run(Session(world, options))
    except Exception:
        traceback.print_exc()
        world.Abort(1)  # the other ranks may be waiting for this one
        raise


def list_algorithms(options: Options) -> int:
    """Show the algorithms of the collectives asked for."""
    from collx.__main__ import main as command

    for name in options.collectives:
        print(f"{name}:")
        command(["list", "--collective", name])
    return 0


def run(session: Session) -> int:
    """Validate, time, report."""
    show = report.Progress(session.rank)
    if session.rank == 0:
        print(report.head(session), flush=True)
    validated = validate(session, show)
    sweep = Sweep(session, validated, show)
    left_out = sweep.run()
    result = report.Result(validated, sweep.rows, left_out)
    show("")
    session.meeting.maximum()
    session.meeting.end(lambda: conclude(session, result))
    session.guard.end()
    return 1 if session.failures else 0


def conclude(session: Session, result: report.Result) -> None:
    """Print the report and write the files."""
    print("\n".join(report.text(session, result)), flush=True)
    report.write(session, result)


if __name__ == "__main__":
    sys.exit(main())

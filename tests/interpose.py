"""Count the calls that a program makes to the MPI library itself."""

import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch import mpiexec, tool

KINDS = {
    "collective": r"I?(barrier|bcast|(all)?gatherv?|scatterv?|alltoall[vw]?|(all)?reduce"
    r"|reduce_scatter(_block)?|(ex)?scan|neighbor_(allgatherv?|alltoall[vw]?))(_init)?",
    "p2p": r"I?(([bsr]?send|psend|m?recv|precv)(_init)?|sendrecv(_replace)?)|start(all)?",
    "communicator": r"comm_(i?dup(_with_info)?|create(_group|_from_group)?|split(_type)?|i?shrink"
    r"|accept|connect|spawn(_multiple)?)|(cart|graph|dist_graph)_create(_adjacent)?|cart_sub"
    r"|intercomm_(create(_from_groups)?|merge)",
    # What else moves data between ranks, or makes them agree, needs one of these.
    "other": r"win_(create(_dynamic)?|allocate(_shared)?)|file_open|comm_i?agree",
}


def native_calls(script: str, size: int) -> Counter[str]:
    """Run a Python script as `size` ranks; return the calls of all ranks by kind, see `KINDS`."""
    with tempfile.TemporaryDirectory() as directory:
        library = _compile(Path(directory))
        report = library.with_name("calls")
        preload = ["env", f"LD_PRELOAD={library}", f"NATIVE_CALLS={report}"]
        mpiexec(size, *preload, sys.executable, "-c", script)
        lines = report.read_text().splitlines()
    by_function, by_kind = Counter[str](), Counter[str]()
    for kind, function, number in map(str.split, lines):
        by_function[function] += int(number)
        by_kind[kind] += int(number)
    print(by_function)  # shown by pytest where a test fails
    assert by_kind.pop("finalize") == size, "a rank did not reach MPI_Finalize"
    return by_kind


def _compile(directory: Path) -> Path:
    """Build the counting library for the MPI of this environment."""
    compiler = tool("mpicc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("counting native calls needs Linux (LD_PRELOAD) and mpicc")
    header = subprocess.run(
        [compiler, "-E", "-P", "-include", "mpi.h", "-x", "c", "/dev/null"],
        capture_output=True,
        text=True,
    )
    if header.returncode:
        pytest.skip(f"mpicc does not work here: {header.stderr}")
    (directory / "wrappers.h").write_text("".join(_wrappers(header.stdout)))
    source = Path(__file__).with_name("nativecalls.c")
    library = directory / "nativecalls.so"
    # mpi4py finds out what its MPI can do by looking for symbols. Nothing is wrapped that the MPI
    # does not have: its header declares it, and --no-undefined makes sure of the definition.
    options = ["-shared", "-fPIC", "-Wl,--no-undefined", f"-I{directory}"]
    subprocess.run([compiler, *options, source, "-o", library], check=True)
    return library


def _wrappers(header: str) -> Iterator[str]:
    """Yield a WRAP line for each function of the preprocessed `mpi.h` that is of some kind."""
    for name, parameters in re.findall(r"\bint (MPIX?_\w+) ?\(([^;]*?)\)\s*[;_]", header):
        for kind, pattern in KINDS.items():
            if re.fullmatch(rf"MPIX?_({pattern})(_c)?", name, re.IGNORECASE):
                arguments = re.findall(r"(\w+)(?:\[[^,]*\])?(?:,|$)", parameters)
                yield f"WRAP({kind}, {name}, ({parameters}), ({', '.join(arguments)}))\n"

"""Start MPI programs from a test that is not one itself."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",  # root in a container is no accident
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",  # more ranks than cores, Open MPI 4
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",  # Open MPI 5
    "OMPI_MCA_mpi_yield_when_idle": "1",  # other programs may need the cores, too
}


def tool(name: str) -> str | None:
    """Return the path of an MPI tool: that of this environment, else the first on PATH."""
    here = Path(sys.executable).parent
    return shutil.which(name, path=os.pathsep.join([str(here), os.environ["PATH"]]))


def mpiexec(
    size: int, *command: str | Path, timeout: int = 120, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `command` as `size` MPI ranks; fail with its output if a rank fails or time is up."""
    __tracebackhide__ = True
    launcher = tool("mpiexec")
    assert launcher, "no mpiexec beside this Python nor on PATH"
    limit = {"MPIEXEC_TIMEOUT": str(timeout)}  # obeyed by the launchers of both MPIs
    done = subprocess.run(
        [launcher, "-n", str(size), *command],
        env={**os.environ, **OPEN_MPI, **limit, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
    return done

"""Where a measurement ran: MPI library, hosts, cores, transport, settings.

Nothing here is timed and nothing may make a run fail: what cannot be found out is left out.
"""

from __future__ import annotations

import math
import os
import platform
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from collx.native import attempt, control_variables, library, native_path

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["control_variables", "describe", "native_path", "summary"]

Info: TypeAlias = "dict[str, object]"

_VARIABLES = re.compile(
    "COLLX_|MPIR_CVAR_|MPICH_|UCX_|FI_|I_MPI_|MV2_|MPI4PY_RC_|OMP_NUM_THREADS"
    "|OMPI_MCA_(?!PREFIXES|initial_wdir|num_procs|cpu_type)"
)
_JOB = re.compile(
    "SLURM_(JOB_ID|JOB_NODELIST|TASKS_PER_NODE)$|(PBS|LSB|COBALT)_JOBID$|FLUX_JOB_ID$|PALS_APID$"
)
_SUMMARY = """\
{library} {library_version}, MPI {mpi}, thread level {thread_level}; {transport}
mpi4py {mpi4py}, numpy {numpy}, Python {python}; {kernel}; {date}
{ranks} on {nodes}, {placement}; {all_cores} cores, {cpu}, load {load}"""
_CROWDED = "oversubscribed: {ranks} ranks on {cores:g} cores; times mostly reflect the scheduler"


class _Rank(NamedTuple):
    """What one rank knows about its place; ranks of one `machine` share its cores."""

    host: str
    machine: str
    cpus: frozenset[int]
    quota: float


def describe(comm: MPI.Comm) -> Info:
    """Describe library, machine, layout and settings; equal on all ranks of `comm` (collective).

    Environment variables, processor and transport are those of rank 0.

    Returns
    -------
    dict
        Plain values, ready for JSON. A key is missing where nothing could be found out.
    """
    ranks = comm.gather(_place(), root=0)
    info: Info = comm.bcast({} if ranks is None else _report(ranks), root=0)
    return info


def summary(info: Mapping[str, Any]) -> str:
    """Lines for the head of a report, made from what `describe` returned.

    Examples
    --------
    >>> crowded = {"oversubscribed": True, "busiest": {"ranks": 8, "cores": 2}}
    >>> print(summary(crowded).splitlines()[-1])
    oversubscribed: 8 ranks on 2 cores; times mostly reflect the scheduler
    """
    phrases = _Phrases({key: _phrase(key, value) for key, value in info.items()})
    more = [key for key in ("infiniband", "job", "variables") if info.get(key)]
    lines = [_SUMMARY.format_map(phrases), *(f"{key}: {phrases[key]}" for key in more)]
    if info.get("oversubscribed"):
        lines.append(_CROWDED.format_map(info["busiest"]))
    return "\n".join(lines)


class _Phrases(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return f"{key} unknown"


def _phrase(key: str, value: Any) -> str:
    if key == "ranks":
        return f"{value} rank{'s' * (value > 1)}"
    if key == "nodes":
        each = " to ".join(f"{n}" for n in sorted({min(value.values()), max(value.values())}))
        return f"{len(value)} node{'s' * (len(value) > 1)} ({each} per node)"
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    return " ".join(f"{item:.2f}" for item in value) if isinstance(value, list) else str(value)


def _report(ranks: Sequence[_Rank]) -> Info:
    nothing: Info = {}
    probes = (_software, _hardware, _settings, partial(_layout, ranks), _transport)
    return {key: value for probe in probes for key, value in attempt(probe, nothing).items()}


def _software() -> Info:
    from mpi4py import MPI

    text = MPI.Get_library_version().strip("\0\n ")
    levels = ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")
    name, number = library(text)
    return {
        "library": name,
        "library_version": number,
        "library_text": text.splitlines()[0],
        "mpi": "{}.{}".format(*MPI.Get_version()),
        "thread_level": {getattr(MPI, f"THREAD_{n}"): n for n in levels}[MPI.Query_thread()],
        "python": platform.python_version(),
        **{package: version(package) for package in ("mpi4py", "numpy")},
    }


def _hardware() -> Info:
    cpuinfo = attempt(Path("/proc/cpuinfo").read_text, "")
    model = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    ports = sorted(Path("/sys/class/infiniband").glob("*/ports/*"))
    return {
        "hostname": platform.node(),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": model[1] if model else platform.processor() or platform.machine(),
        "load": list(os.getloadavg()),
        "infiniband": {f"{port.parts[-3]}:{port.name}": _port(port) for port in ports},
    }


def _port(port: Path) -> str:
    """State, rate and link layer of an InfiniBand (or RoCE) port."""
    facts = (port / name for name in ("state", "rate", "link_layer"))
    return ", ".join(attempt(fact.read_text, "?").strip() for fact in facts)


def _settings() -> Info:
    variables = sorted(os.environ.items())
    return {
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "job": {name: value for name, value in variables if _JOB.match(name)},
        "variables": {name: value for name, value in variables if _VARIABLES.match(name)},
    }


def _place() -> _Rank:
    host = platform.node()
    machine = attempt(Path("/proc/sys/kernel/random/boot_id").read_text, host).strip()
    everywhere = frozenset(range(os.cpu_count() or 1))
    cpus = attempt(lambda: frozenset(os.sched_getaffinity(0)), everywhere)
    return _Rank(host, machine, cpus, attempt(_quota, math.inf))


def _quota(groups: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> float:
    """Cores that the tightest CPU quota around this process leaves (control groups, version 2)."""
    inner = re.search(r"^0::/(.*)$", Path(groups).read_text(), re.MULTILINE)
    folder = Path(inner[1] if inner else "")
    files = [Path(root, part, "cpu.max") for part in (folder, *folder.parents)]
    words = [file.read_text().split() for file in files if file.exists()]
    return min((int(q) / int(period) for q, period in words if q != "max"), default=math.inf)


def _layout(ranks: Sequence[_Rank]) -> Info:
    machines = Counter(host for host, _ in {rank[:2] for rank in ranks})
    labels = [r.host if machines[r.host] == 1 else f"{r.host} {r.machine[:8]}" for r in ranks]
    crowds = _grouped(ranks, [rank.machine for rank in ranks]).values()
    busiest = max(crowds, key=lambda crowd: len(crowd) / _cores(crowd))
    return {
        "ranks": len(ranks),
        "nodes": dict(Counter(labels)),
        "placement": _placement(labels),
        "cores": {label: _cores(crowd) for label, crowd in _grouped(ranks, labels).items()},
        "all_cores": sum(map(_cores, crowds)),
        "busiest": {"ranks": len(busiest), "cores": _cores(busiest)},
        "oversubscribed": len(busiest) > _cores(busiest),
    }


def _grouped(ranks: Sequence[_Rank], keys: Sequence[str]) -> dict[str, list[_Rank]]:
    groups: dict[str, list[_Rank]] = {key: [] for key in keys}
    for rank, key in zip(ranks, keys, strict=True):
        groups[key].append(rank)
    return groups


def _cores(ranks: Sequence[_Rank]) -> float:
    """Cores that these ranks may use together: all their affinities, at most their quota."""
    allowed = len(frozenset().union(*(rank.cpus for rank in ranks)))
    return min(allowed, max(rank.quota for rank in ranks))


def _placement(labels: Sequence[str]) -> str:
    nodes = {label: k for k, label in enumerate(dict.fromkeys(labels))}
    order = [nodes[label] for label in labels]
    if order == sorted(order):
        return "consecutive"
    in_turn = all(node == rank % len(nodes) for rank, node in enumerate(order))
    return "round-robin" if in_turn else "irregular"


def _transport() -> Info:
    from mpi4py import MPI

    told = {k: os.environ.get(k) for k in ("FI_PROVIDER", "UCX_TLS", "UCX_NET_DEVICES")}
    device = re.search(r"^MPICH Device:\s*(\S.*?)\s*$", MPI.Get_library_version(), re.MULTILINE)
    found = _mpich_transport(device[1]) if device else _open_mpi_transport()
    return {"transport": {name: value for name, value in {**found, **told}.items() if value}}


def _mpich_transport(device: str) -> dict[str, str]:
    chosen = control_variables(["MPIR_CVAR_CH4_NETMOD"]).get("MPIR_CVAR_CH4_NETMOD")
    first = device.removeprefix("ch4:").split()[0]
    return {"device": device, "netmod": str(chosen or f"{first} (assumed: the first one built)")}


def _open_mpi_transport() -> dict[str, str]:
    """Components in use: Open MPI drops the variables of those that it has closed."""
    variables = control_variables(["pml_*_priority", "btl_*_exclusivity"])
    names = [name.split("_") for name in variables if "vader" not in name]  # old name of sm
    found = {kind: "+".join(n[1] for n in names if n[0] == kind) for kind in ("pml", "btl")}
    return {"pml": found["pml"], "btl": found["btl"] if "ob1" in found["pml"] else ""}

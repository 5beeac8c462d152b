"""What the native MPI library tells about itself: its name, its settings, its algorithms.

mpi4py does not wrap MPI_T, the tool interface of MPI, so it is called here through ctypes. Nothing
in this module may make a run fail: what cannot be found out is left out.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")

_LIBRARIES = {
    "Open MPI": r"^Open MPI v(\S+?),",
    "MPICH": r"^MPICH Version:\s*(\S+)",
    "Cray MPICH": r"CRAY MPICH version (\S+)",
    "Intel MPI": r"^Intel\(R\) MPI Library (\S+)",
    "MVAPICH": r"^MVAPICH2? Version\s*:\s*(\S+)",
}

# Default rules: "ranks: limit=algorithm ...; ...". The first class of ranks that fits counts, then
# the first limit above the bytes. MPICH 5.0 by name, for predefined commutative operators and at
# least as many elements as ranks; `_MPICH_LEVELS` says when its device layer works node by node.
# Open MPI 5.0 (component tuned) by number, for commutative operators.
_MPICH = {
    "allgather": "pow2: 512K=recursive_doubling *=ring; *: 80K=brucks *=ring",
    "allreduce": "*: 9=recursive_doubling *=reduce_scatter_allgather",
    "barrier": "*: *=k_dissemination",
    "bcast": "<8: *=binomial; pow2: 12289=binomial 524289=scatter_recursive_doubling_allgather"
    " *=scatter_ring_allgather; *: 12289=binomial *=scatter_ring_allgather",
    "gatherv": "*: *=linear",
    "reduce": "*: 2049=binomial *=reduce_scatter_gather",
    "reduce_scatter_block": "*: 512K=recursive_halving *=pairwise",
}
_MPICH_LEVELS = {
    "allreduce": "*: *=node",
    "barrier": "*: *=node",
    "bcast": "<8: *=node; pow2: 512K=node *=flat; *: 12K=node *=flat",
    "reduce": "*: *=node",
}
_OPEN_MPI = {
    "allgather": "<3: *=6; <32: *=3; <64: 1K=3 64K=5 *=4; <128: 512=3 64K=5 *=4; <256: 512=3"
    " 128K=5 512K=4 1M=5 *=4; <512: 32=3 128=2 1K=3 128K=5 512K=4 1M=5 *=4; <1024: 64=3 256=2"
    " 2K=3 *=5; <2048: 4=3 8=2 16=3 32=2 256=3 512=2 4K=3 *=5; <4096: 32=2 128=3 512=2 4K=3 *=5;"
    " *: 2=3 8=2 16=3 512=2 4K=3 *=5",
    "allreduce": "<4: 8=4 4K=3 8K=4 16K=3 64K=4 256K=5 *=6; <8: 16=4 8K=3 *=6; <16: 8K=3 *=6; <32:"
    " 64=5 4K=3 *=6; <64: 128=5 *=6; <128: 256K=3 *=6; <256: 128K=2 256K=3 *=6; <512: 4K=2 *=6;"
    " <2048: 2K=2 16K=3 *=6; <4096: 2K=2 4K=5 16K=3 *=6; *: 2K=2 16K=5 32K=3 *=6",
    "barrier": "<4: *=3; <8: *=1; <64: *=3; <256: *=4; <512: *=6; <1024: *=4; <4096: *=6; *: *=4",
    "bcast": "<4: 32=3 256=5 512=3 1K=7 32K=1 128K=5 256K=2 512K=1 1M=6 *=5; <8: 64=5 128=6 2K=5"
    " 8K=6 1M=1 *=2; <16: 8=7 64=5 4K=7 16K=5 32K=6 *=1; <32: 4K=7 1M=6 *=8; <64: 2K=6 *=7; <128:"
    " *=7; <256: 2=6 16K=5 32K=1 64K=5 *=7; <1024: 16K=7 32K=4 *=7; <2048: 512K=7 *=8; <4096:"
    " 256K=7 *=8; *: 8K=7 16K=5 256K=7 *=8",
    "reduce": "<4: 8=7 16=4 32=3 256K=1 512K=3 1M=2 *=3; <8: 4K=4 64K=2 256K=5 512K=1 1M=5 *=1;"
    " <16: 8K=4 *=5; <32: 4K=4 *=5; <256: *=5; <512: 8K=5 16K=6 *=5; <2048: *=5; <4096: 512=5 1K=6"
    " 8K=5 16K=6 *=5; *: 16=5 32=6 1K=5 2K=6 8K=5 16K=6 *=5",
    "reduce_scatter_block": "<4: 4=2 8=4 16=3 128=4 256=3 4K=4 8K=3 128K=4 *=1; <8: 8=3 32=2 256=4"
    " 8K=3 16K=4 1M=3 *=1; <16: 4=1 32=3 128=4 512K=3 4M=1 *=4; <32: 32=1 512K=3 2M=1 4M=3 *=4;"
    " *: 4=3 16=1 64K=4 256K=1 *=4",
}

_DECISIVE = (
    *("MPIR_CVAR_*_ALGORITHM", "MPIR_CVAR_*DEVICE_COLLECTIVE*", "MPIR_CVAR_*_JSON_FILE"),
    *("MPIR_CVAR_POSIX_NUM_COLLS_THRESHOLD", "coll_*_priority", "coll_han_*_module"),
    *("coll_han_use_*", "coll_tuned_*_algorithm", "coll_tuned_*_rules*", "MPIR_CVAR_*_COMPOSITION"),
)
_LARGEST_ELEMENT = 32  # bytes, of a complex long double
# Components for other communicators (self, inter), other buffers, or other forms (libnbc).
_SPECIAL = {"accelerator", "cuda", "ftagree", "inter", "libnbc", "self", "sync"}


def attempt(probe: Callable[[], T], otherwise: T) -> T:
    """Return what `probe` returns, or `otherwise` if it fails."""
    try:
        return probe()
    except Exception:
        return otherwise


def library(text: str) -> tuple[str, str]:
    """Name and version of the MPI library, from what `MPI.Get_library_version` says.

    Examples
    --------
    >>> library("Open MPI v5.0.11, package: Open MPI, ident: 5.0.11")
    ('Open MPI', '5.0.11')
    """
    for name, pattern in _LIBRARIES.items():
        if found := re.search(pattern, text, re.MULTILINE):
            return name, found[1]
    return re.split("[,\n]", text, maxsplit=1)[0], ""


class _Variable(NamedTuple):
    """Value of a control variable, and the names that the library has for values."""

    value: int | str
    names: Mapping[int | str, str]

    @property
    def text(self) -> int | str:
        return self.names.get(self.value, self.value)


def control_variables(names: Iterable[str]) -> dict[str, int | str]:
    """Read control variables of the MPI library through its tool interface, MPI_T.

    Parameters
    ----------
    names
        Names, patterns such as ``coll_*_priority``, or prefixes that end in an underscore.

    Returns
    -------
    dict
        Value by name; a value that the library has a name for, as that name. Floating point
        variables are left out. Empty where the interface cannot be reached.
    """
    return {name: found.text for name, found in _variables(*names).items()}


def _variables(*patterns: str) -> dict[str, _Variable]:
    wanted = [pattern + "*" * pattern.endswith("_") for pattern in patterns]
    nothing: dict[str, _Variable] = {}
    return attempt(lambda: dict(_read(_loaded_library(), wanted)), nothing)


@cache
def _loaded_library() -> ctypes.CDLL:
    """MPI library that mpi4py has loaded."""
    import mpi4py.MPI  # noqa: F401

    loaded = re.findall(r" (/.*/lib(?:mpi|mpich)[^/]*\.so.*)", Path("/proc/self/maps").read_text())
    libraries = (ctypes.CDLL(path) for path in dict.fromkeys(loaded))
    return next(library for library in libraries if hasattr(library, "MPI_T_init_thread"))


def _read(mpi: ctypes.CDLL, wanted: Sequence[str]) -> Iterator[tuple[str, _Variable]]:
    from mpi4py import MPI

    # Open MPI takes the level asked for here as that of the whole process, MPI.Query_thread too.
    level = MPI.Query_thread() if MPI.Is_initialized() else MPI.THREAD_MULTIPLE
    number, real = ctypes.c_int(), MPI._handleof(MPI.DOUBLE)
    mpi.MPI_T_init_thread(level, ctypes.byref(number))
    try:
        mpi.MPI_T_cvar_get_num(ctypes.byref(number))
        for index in range(number.value):
            name, text, kind, enum = _about(mpi, index)
            if kind != real and any(fnmatchcase(name, pattern) for pattern in wanted):
                for value in _values(mpi, index):
                    yield name, _Variable(_set(name, value), _names(mpi, enum, text))
    finally:
        mpi.MPI_T_finalize()


def _set(name: str, value: int | str) -> int | str:
    """Value as set by the user: of texts, MPICH's interface tells only the built-in ones."""
    return os.environ.get(name, value) if isinstance(value, str) else value


def _about(mpi: ctypes.CDLL, index: int) -> tuple[str, str, int | None, ctypes.c_void_p]:
    """Name, description, type and enumeration of a variable; empty if it has gone."""
    name, text = ctypes.create_string_buffer(512), ctypes.create_string_buffer(8192)
    room, length = ctypes.c_int(512), ctypes.c_int(8192)
    level, binding, scope = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    kind, enum = ctypes.c_void_p(), ctypes.c_void_p()
    out = (name, room, level, kind, enum, text, length, binding, scope)
    places = (item if isinstance(item, ctypes.Array) else ctypes.byref(item) for item in out)
    mpi.MPI_T_cvar_get_info(index, *places)
    return name.value.decode(), text.value.decode(), kind.value, enum


def _values(mpi: ctypes.CDLL, index: int) -> Iterator[int | str]:
    """Read a variable: text if it is long, else an integer; nothing if it has gone.

    Types are handles that differ between libraries, so the width of the integer is found by reading
    it over zeros and over ones: the bytes that come out equal are its own.
    """
    handle, count, reads = ctypes.c_void_p(), ctypes.c_int(), []
    if mpi.MPI_T_cvar_handle_alloc(index, None, ctypes.byref(handle), ctypes.byref(count)):
        return
    size = 8 * count.value + 8
    for fill in (b"\0", b"\xff"):
        buffer = ctypes.create_string_buffer(fill * size, size)
        mpi.MPI_T_cvar_read(handle, buffer)
        reads.append(buffer.raw)
    mpi.MPI_T_cvar_handle_free(ctypes.byref(handle))
    if count.value > 8:
        yield reads[0].split(b"\0")[0].decode(errors="replace")
    else:
        own = [one for one, other in zip(*reads, strict=True) if one == other]
        yield int.from_bytes(own[:8], sys.byteorder, signed=True)


def _names(mpi: ctypes.CDLL, enum: ctypes.c_void_p, text: str) -> dict[int | str, str]:
    """Names of values: from the library's enumeration, or from MPICH's list in the description."""
    if not enum:
        names = re.findall(r"^\s*(\w+)\s+-\s", text, re.MULTILINE)
        return {} if "true" in names else dict(enumerate(names))
    count, value, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
    found: dict[int | str, str] = {}
    mpi.MPI_T_enum_get_info(enum, ctypes.byref(count), name, ctypes.byref(ctypes.c_int(256)))
    for item in range(count.value):
        size = ctypes.byref(ctypes.c_int(256))
        mpi.MPI_T_enum_get_item(enum, item, ctypes.byref(value), name, size)
        found[value.value] = name.value.decode()
    return found


def native_path(collective: str, nbytes: int, size: int, single_node: bool) -> str:
    """Say which way the native library most likely takes, and what of that is only assumed.

    Settings are read once, at the first call. Default rules are those of MPICH 5.0 and Open MPI
    5.0 for predefined, commutative operators.

    Parameters
    ----------
    collective
        Lower-case name, such as ``"reduce_scatter_block"``.
    nbytes
        Bytes of the whole vector; of one rank's block in allgather and reduce_scatter_block.
    size
        Number of ranks.
    single_node
        Whether all ranks are on one node.
    """
    if size < 2:
        return "one rank: nothing to send"
    path = attempt(partial(_path, collective, nbytes, size, single_node), "")
    return path or "unknown: no rule for this library and collective"


def _path(collective: str, nbytes: int, size: int, single_node: bool) -> str:
    from mpi4py import MPI

    name, _ = library(MPI.Get_library_version())
    path = {"MPICH": _mpich_path, "Open MPI": _open_mpi_path}[name]
    return path(_seen(), collective, nbytes, size, single_node)


@cache
def _seen() -> dict[str, _Variable]:
    return _variables(*_DECISIVE)


def _rule(table: str, size: int, nbytes: float) -> str:
    rows = (row.strip().split(": ") for row in table.split(";"))
    ladder = next(ladder for ranks, ladder in rows if _fits(ranks, size))
    steps = (step.split("=") for step in ladder.split())
    return next(algorithm for limit, algorithm in steps if nbytes < _bytes(limit))


def _by_rule(algorithm: str, collective: str, nbytes: int, size: int) -> str:
    """Name of a default algorithm, with what makes it uncertain."""
    few = collective in ("allreduce", "bcast", "reduce") and nbytes < _LARGEST_ELEMENT * size
    doubt = ", another one where elements are fewer than ranks" * few
    return f"{algorithm} (default rule{doubt}, not observed)"


def _fits(ranks: str, size: int) -> bool:
    if ranks == "pow2":
        return size & (size - 1) == 0
    return ranks == "*" or size < int(ranks[1:])


def _bytes(limit: str) -> float:
    if limit == "*":
        return math.inf
    return int(limit.rstrip("KM")) * {"K": 1024, "M": 1024**2}.get(limit[-1], 1)


def _mpich_path(
    settings: Mapping[str, _Variable], collective: str, nbytes: int, size: int, single_node: bool
) -> str:
    seen = {name.removeprefix("MPIR_CVAR_"): found.text for name, found in settings.items()}
    key = collective.upper()
    blocks = size if collective in ("allgather", "reduce_scatter_block") else 1
    flat = _mpich_flat(seen, collective, nbytes * blocks, size)
    device = seen.get("DEVICE_COLLECTIVES", "percoll")
    if device == "none" or (device == "percoll" and not seen.get(f"{key}_DEVICE_COLLECTIVE", 1)):
        return f"{flat}; device collectives are off (observed)"
    if composition := seen.get(f"{key}_COMPOSITION"):
        return f"composition {composition} (forced, observed): {flat}"
    if _rule(_MPICH_LEVELS.get(collective, "*: *=flat"), size, nbytes) == "flat":
        return flat
    if not single_node:
        return f"inside nodes and between their leaders (default rule, not observed): {flat}"
    return _mpich_single_node(seen, key, flat)


def _mpich_flat(seen: Mapping[str, object], collective: str, total: int, size: int) -> str:
    forced = seen.get(f"{collective.upper()}_INTRA_ALGORITHM", "auto")
    if forced != "auto":
        return f"{forced} (forced, observed)"
    if files := [str(file) for name, file in seen.items() if name.endswith("JSON_FILE") and file]:
        return f"as {' and '.join(files)} says (observed, not read)"
    return _by_rule(_rule(_MPICH[collective], size, total), collective, total, size)


def _mpich_single_node(seen: Mapping[str, object], key: str, flat: str) -> str:
    """Tell whether the shared-memory algorithms, called release_gather, take over."""
    from mpi4py import MPI

    calls = seen.get("POSIX_NUM_COLLS_THRESHOLD")
    if calls is None:
        return flat
    if seen.get(f"{key}_POSIX_INTRA_ALGORITHM") == "mpir":
        return f"{flat}; shared-memory release_gather is off (observed)"
    if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
        return f"{flat}; no shared-memory release_gather under MPI_THREAD_MULTIPLE (observed)"
    return (
        f"shared-memory release_gather (default rule, not observed) from call {calls} (observed)"
        f" on a communicator, before that {flat}"
    )


def _open_mpi_path(
    settings: Mapping[str, _Variable], collective: str, nbytes: int, size: int, single_node: bool
) -> str:
    for priority, name in _components(settings):
        chosen = f"component {name} (priority {priority}, observed)"
        if name == "han" and not single_node and _han_has(settings, collective):
            return f"{chosen}: inside nodes and between their leaders, algorithms not visible"
        if name == "tuned" and f"coll_tuned_{collective}_algorithm" in settings:
            return f"{chosen}: {_tuned(settings, collective, nbytes, size)}"
        if name == "basic" and collective == "gatherv":
            return f"{chosen}: linear (default rule, not observed)"
        if name not in ("han", "tuned", "basic"):
            return f"{chosen}, if it has {collective}: algorithm not visible"
    return ""


def _components(settings: Mapping[str, _Variable]) -> list[tuple[int, str]]:
    """Components that may carry collectives, highest priority first."""
    found = {re.sub("coll_|_priority", "", n): v.value for n, v in settings.items() if "_prio" in n}
    ranked = [(int(p), name) for name, p in found.items() if name not in _SPECIAL]
    return sorted((pair for pair in ranked if pair[0] > 0), reverse=True)


def _han_has(settings: Iterable[str], collective: str) -> bool:
    marks = {f"coll_han_use_{collective}_algorithm", f"coll_han_{collective}_up_module"}
    return not marks.isdisjoint(settings)


def _tuned(settings: Mapping[str, _Variable], collective: str, nbytes: int, size: int) -> str:
    variable = settings[f"coll_tuned_{collective}_algorithm"]
    dynamic = _text(settings, "coll_tuned_use_dynamic_rules") == "true"
    if dynamic and variable.value:
        return f"{variable.text} (forced, observed)"
    if dynamic and (file := _text(settings, "coll_tuned_dynamic_rules_filename")):
        return f"as the rules file {file} says (observed, not read)"
    number = int(_rule(_OPEN_MPI[collective], size, nbytes))
    ignored = f"; {variable.text} is asked for, but dynamic rules are off" * bool(variable.value)
    algorithm = variable.names.get(number, f"number {number}")
    return _by_rule(algorithm, collective, nbytes, size) + ignored


def _text(settings: Mapping[str, _Variable], name: str) -> int | str:
    return settings[name].text if name in settings else ""

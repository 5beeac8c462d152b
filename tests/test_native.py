"""What the native library tells about itself, and what is assumed where it says nothing."""

from __future__ import annotations

import json
import sys
from functools import cache
from typing import Any

import pytest
from launch import mpiexec

from collx import native

SHOW = """
import json
from mpi4py import MPI
from collx import native

before = MPI.Query_thread()
told = {
    "library": native.library(MPI.Get_library_version())[0],
    "variables": native.control_variables(["*"]),
    "some": native.control_variables(["MPIR_CVAR_CH4_", "coll_*_priority"]),
    "same level": MPI.Query_thread() == before,
}
for collective in ("allreduce", "bcast", "no such collective"):
    told[collective] = native.native_path(collective, 65536, 4, True)
    told[collective, "nodes"] = native.native_path(collective, 65536, 4, False)
print(json.dumps({" ".join(key) if isinstance(key, tuple) else key: told[key] for key in told}))
"""


@cache
def told(**environment: str) -> dict[str, Any]:
    """Return what a process of its own is told with these environment variables."""
    result: dict[str, Any] = json.loads(
        mpiexec(1, sys.executable, "-c", SHOW, timeout=60, **environment).stdout
    )
    return result


def only(library: str) -> None:
    if told()["library"] != library:
        pytest.skip(f"needs {library}")


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [
        ("Open MPI v5.0.11, package: Open MPI x Distribution", "Open MPI", "5.0.11"),
        ("MPICH Version:      5.0.2\nMPICH Device:       ch4:ofi\n", "MPICH", "5.0.2"),
        ("MPICH Version:\t3.4\nMPI VERSION    : CRAY MPICH version 8.1.29", "MPICH", "3.4"),
        ("MPI VERSION    : CRAY MPICH version 8.1.29 (ANL base 3.4a2)", "Cray MPICH", "8.1.29"),
        ("Intel(R) MPI Library 2021.14 for Linux* OS", "Intel MPI", "2021.14"),
        ("MVAPICH2 Version      :\t2.3.7", "MVAPICH", "2.3.7"),
        ("Fujitsu MPI Library 4.0.1, and more\nof it", "Fujitsu MPI Library 4.0.1", ""),
    ],
)
def test_library(text: str, name: str, version: str) -> None:
    assert native.library(text) == (name, version)


def test_rules_read_as_written() -> None:
    table = "<4: 8=a *=b; pow2: 2K=c 1M=d *=e; *: *=f"
    read = [native._rule(table, *case) for case in [(3, 7), (3, 8), (8, 2048), (8, 2**20), (9, 0)]]

    assert read == ["a", "b", "d", "e", "f"]


@pytest.mark.parametrize("tables", [native._MPICH, native._MPICH_LEVELS, native._OPEN_MPI])
def test_rules_cover_every_case(tables: dict[str, str]) -> None:
    for table in tables.values():
        assert table.rsplit("; ")[-1].startswith("*: ")
        for row in table.split("; "):
            limits = [native._bytes(step.split("=")[0]) for step in row.split(": ")[1].split()]
            assert limits == sorted(set(limits))
            assert limits[-1] == float("inf")


def settings(**values: int | str) -> dict[str, native._Variable]:
    return {name: native._Variable(value, {}) for name, value in values.items()}


PRIORITIES = {"coll_han_priority": 35, "coll_tuned_priority": 30, "coll_basic_priority": 10}
TUNED = {"coll_tuned_allreduce_algorithm": 0, "coll_han_use_allreduce_algorithm": 0}


def test_open_mpi_on_one_node_is_tuned_and_on_several_is_han() -> None:
    seen = settings(**PRIORITIES, **TUNED, coll_self_priority=75)
    one, several = (
        native._open_mpi_path(seen, "allreduce", 4096, 6, alone) for alone in (True, False)
    )

    assert one.startswith("component tuned (priority 30, observed): number 3 (default rule")
    assert several.startswith("component han (priority 35, observed)")


def test_open_mpi_component_of_highest_priority_counts() -> None:
    seen = settings(**PRIORITIES, **TUNED, coll_ucc_priority=100)
    path = native._open_mpi_path(seen, "allreduce", 4096, 6, True)

    assert path.startswith("component ucc (priority 100, observed), if it has allreduce")


def test_open_mpi_without_tuned_has_linear_gatherv() -> None:
    path = native._open_mpi_path(settings(**PRIORITIES), "gatherv", 8, 6, False)

    assert path == "component basic (priority 10, observed): linear (default rule, not observed)"


def test_mpich_without_device_collectives() -> None:
    seen = settings(MPIR_CVAR_DEVICE_COLLECTIVES="none")
    path = native._mpich_path(seen, "allgather", 16384, 5, True)

    assert path == "ring (default rule, not observed); device collectives are off (observed)"


def test_mpich_rules_file_is_named() -> None:
    seen = settings(MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE="rules.json")

    assert "rules.json" in native._mpich_path(seen, "bcast", 8, 9, False)


def test_single_rank_has_nothing_to_send() -> None:
    assert native.native_path("bcast", 8, 1, True) == "one rank: nothing to send"


def test_collective_without_a_rule_is_unknown() -> None:
    assert told()["no such collective"].startswith("unknown")


def test_reading_variables_keeps_the_thread_level() -> None:
    assert told()["same level"]
    assert told(MPI4PY_RC_THREAD_LEVEL="single")["same level"]


def test_path_of_open_mpi() -> None:
    only("Open MPI")
    chosen = "component tuned (priority 30, observed): rabenseifner (default rule, not observed)"

    assert told()["allreduce"] == chosen
    assert told()["allreduce nodes"].startswith("component han (priority 35, observed)")


def test_path_of_mpich() -> None:
    only("MPICH")
    rule = "reduce_scatter_allgather (default rule, not observed)"

    assert told()["allreduce"].startswith(rule)
    assert told()["allreduce nodes"].endswith(rule)


def test_shared_memory_algorithms_of_mpich_depend_on_the_thread_level() -> None:
    only("MPICH")
    multiple, single = told(), told(MPI4PY_RC_THREAD_LEVEL="single")

    assert "no shared-memory release_gather under MPI_THREAD_MULTIPLE" in multiple["allreduce"]
    assert single["allreduce"].startswith("shared-memory release_gather (default rule, not obs")


FORCED = {
    "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
    "OMPI_MCA_coll_tuned_allreduce_algorithm": "4",
    "OMPI_MCA_btl": "self,sm",
    "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "ring",
    "MPIR_CVAR_ALLREDUCE_TREE_TYPE": "kary",
}


def test_forced_algorithm_is_seen() -> None:
    assert "ring (forced, observed)" in told(**FORCED)["allreduce"]


def test_algorithm_without_dynamic_rules_is_reported_as_ignored() -> None:
    only("Open MPI")
    path = told(OMPI_MCA_coll_tuned_bcast_algorithm="2")["bcast"]

    assert path.endswith("; chain is asked for, but dynamic rules are off")


@pytest.mark.parametrize(
    ("library", "text", "value"),
    [("MPICH", "MPIR_CVAR_ALLREDUCE_TREE_TYPE", "kary"), ("Open MPI", "btl", "self,sm")],
)
def test_variables_of_text_are_as_set_by_the_user(library: str, text: str, value: str) -> None:
    only(library)

    assert told(**FORCED)["variables"][text] == value


@pytest.mark.parametrize(
    ("library", "name", "value"),
    [("MPICH", "MPIR_CVAR_DEVICE_COLLECTIVES", "percoll"), ("Open MPI", "coll_han_priority", 35)],
)
def test_all_control_variables(library: str, name: str, value: object) -> None:
    only(library)
    variables, some = told()["variables"], told()["some"]

    assert variables[name] == value
    assert len(variables) > 300
    assert 3 < len(some) < 100
    assert -1 in variables.values()
    assert 2**32 - 1 not in variables.values()
    assert "" not in variables


def test_no_library_means_no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise LookupError("no MPI library here")

    monkeypatch.setattr(native, "_loaded_library", fail)

    assert native.control_variables(["*"]) == {}

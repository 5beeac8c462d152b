"""What is recorded about a run, and that nothing of it can make the run fail."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from collx import environment
from collx.environment import _Rank


def ranks_on(*places: str, cores: int = 2, quota: float = math.inf) -> list[_Rank]:
    """One rank on each place `host@machine`, where every machine has the same cores."""
    pairs = [place.split("@") for place in places]
    return [_Rank(host, machine, frozenset(range(cores)), quota) for host, machine in pairs]


@pytest.mark.parametrize(
    ("nodes", "placement"),
    [
        ("aaaa", "consecutive"),
        ("ab", "consecutive"),
        ("aabbb", "consecutive"),
        ("abab", "round-robin"),
        ("abcabca", "round-robin"),
        ("abba", "irregular"),
        ("aabba", "irregular"),
    ],
)
def test_placement(nodes: str, placement: str) -> None:
    assert environment._placement(nodes) == placement


def test_layout_of_two_nodes() -> None:
    layout = environment._layout(ranks_on("a@1", "a@1", "b@2"))

    assert layout["nodes"] == {"a": 2, "b": 1}
    assert layout["cores"] == {"a": 2, "b": 2}
    assert layout["busiest"] == {"ranks": 2, "cores": 2}
    assert not layout["oversubscribed"]


def test_hosts_of_one_machine_share_its_cores() -> None:
    layout = environment._layout(ranks_on("a@1", "b@1", "c@1"))

    assert layout["nodes"] == {"a": 1, "b": 1, "c": 1}
    assert layout["all_cores"] == 2
    assert layout["busiest"] == {"ranks": 3, "cores": 2}
    assert layout["oversubscribed"]


def test_machines_of_one_name_are_told_apart() -> None:
    layout = environment._layout(ranks_on("a@1234567890", "a@2345678901"))

    assert layout["nodes"] == {"a 12345678": 1, "a 23456789": 1}


def test_cores_are_the_union_of_affinities_up_to_the_quota() -> None:
    bound = [_Rank("a", "1", frozenset({k}), math.inf) for k in range(4)]
    limited = [rank._replace(quota=1.5) for rank in bound]

    assert environment._layout(bound)["cores"] == {"a": 4}
    assert environment._layout(limited)["busiest"] == {"ranks": 4, "cores": 1.5}


def test_tightest_quota_of_the_control_groups(tmp_path: Path) -> None:
    groups, inner = tmp_path / "cgroup", tmp_path / "job" / "step"
    inner.mkdir(parents=True)
    groups.write_text("4:memory:/old\n0::/job/step\n")
    assert environment._quota(str(groups), str(tmp_path)) == math.inf

    (inner / "cpu.max").write_text("max 100000\n")
    (tmp_path / "job" / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "cpu.max").write_text("400000 100000\n")
    assert environment._quota(str(groups), str(tmp_path)) == 1.5


def test_only_settings_of_this_run_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLX_ALLREDUCE", "ring")
    monkeypatch.setenv("UCX_TLS", "tcp")
    monkeypatch.setenv("OMPI_MCA_coll", "^han")
    monkeypatch.setenv("OMPI_MCA_initial_wdir", "set by the launcher")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("MY_PASSWORD", "secret")
    settings = environment._settings()

    assert settings["job"] == {"SLURM_JOB_ID": "17"}
    expected = {"COLLX_ALLREDUCE": "ring", "OMPI_MCA_coll": "^han", "UCX_TLS": "tcp"}
    variables = settings["variables"]
    assert isinstance(variables, dict)
    assert expected.items() <= variables.items()
    assert not {"OMPI_MCA_initial_wdir", "MY_PASSWORD"} & set(variables)


def test_ports_of_infiniband(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("4: ACTIVE\n")
    (tmp_path / "rate").write_text("200 Gb/sec (4X HDR)\n")

    assert environment._port(tmp_path) == "4: ACTIVE, 200 Gb/sec (4X HDR), ?"


def test_a_probe_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> dict[str, object]:
        raise OSError("no such thing here")

    monkeypatch.setattr(environment, "_hardware", fail)
    monkeypatch.setattr(environment, "_software", fail)
    monkeypatch.setattr(environment, "_transport", fail)
    info = environment._report(ranks_on("a@1", "a@1", "a@1"))

    assert "cpu" not in info
    assert info["ranks"] == 3
    assert environment.summary(info).splitlines()[-1] == (
        "oversubscribed: 3 ranks on 2 cores; times mostly reflect the scheduler"
    )


def test_summary_says_how_the_ranks_lie() -> None:
    layout = environment._layout(ranks_on("a@1", "a@1", "b@2"))
    settings = {"variables": {"COLLX_ALLREDUCE": "ring"}, "job": {}}
    lines = environment.summary(layout | settings).splitlines()

    assert lines[2].startswith("3 ranks on 2 nodes (1 to 2 per node), consecutive; 4 cores")
    assert lines[3:] == ["variables: COLLX_ALLREDUCE ring"]


def test_summary_of_nothing() -> None:
    assert "library unknown" in environment.summary({})


@pytest.mark.mpi
def test_description_is_complete_and_the_same_everywhere() -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    info = environment.describe(world)

    assert info["ranks"] == world.size
    assert str(info["library"]) in str(info["library_text"])
    assert info["thread_level"] in ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")
    assert info["transport"]
    assert {"cpu", "kernel", "hostname", "load", "date", "placement", "variables"} <= set(info)
    assert set(world.allgather(json.dumps(info))) == {json.dumps(info)}
    assert "unknown" not in environment.summary(info)

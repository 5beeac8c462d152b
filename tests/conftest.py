"""How the tests behave under mpiexec, and how many examples Hypothesis tries.

Under `mpiexec ... pytest --with-mpi` only rank 0 reports progress. A rank whose test fails says
so and aborts the job, because the other ranks may be waiting for it. (A rank that hangs is ended
by pytest's faulthandler_timeout, and the launcher then ends the others.)
"""

import os
import sys
import time
from collections.abc import Iterator

import hypothesis
import pytest
import pytest_mpi

TIME_FOR_OTHER_RANKS_TO_REPORT = 1.0  # seconds


@pytest.hookimpl(trylast=True)  # when the reporter exists that `Rank` adjusts
def pytest_configure(config: pytest.Config) -> None:
    mpi = config.getoption("--with-mpi")
    # All ranks must try the same examples, and no rank may give up for being slow.
    slow = [hypothesis.HealthCheck.too_slow]
    examples = {"deadline": None, "derandomize": mpi, "suppress_health_check": slow}
    hypothesis.settings.register_profile("quick", max_examples=25, **examples)
    hypothesis.settings.register_profile("thorough", max_examples=1000, **examples)
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
    if mpi:
        config.pluginmanager.register(Rank(config), "rank")


class Rank:
    """What one rank of several reports, and when it ends the job."""

    def __init__(self, config: pytest.Config) -> None:
        from mpi4py import MPI  # tests without MPI do not initialise it

        self.world = MPI.COMM_WORLD
        self.library = "{} {}.{}.{}".format(MPI.get_vendor()[0], *MPI.get_vendor()[1])
        config.option.no_summary = True  # failures are reported at once, see below
        config.get_terminal_writer().hasmarkup = False  # Open MPI's ranks write to a terminal
        if self.world.rank > 0:
            config.pluginmanager.unregister(name="terminalreporter")
        for plugin in config.pluginmanager.get_plugins():
            if isinstance(plugin, pytest_mpi.MPIPlugin):
                plugin._is_testing_mpi = False  # no page about the MPI; one line will do

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line(f"ranks: {self.world.size}, {self.library}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            captured = "".join(f"\n--- {name} ---\n{text}" for name, text in report.sections)
            self.abort(f"{report.nodeid} ({report.when})\n{report.longreprtext}{captured}")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.abort(f"collection of {report.nodeid}\n{report.longreprtext}")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, exitstatus: int) -> Iterator[None]:
        yield
        if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            self.abort(f"session with {exitstatus!r}")

    def abort(self, what: str) -> None:
        """Report a failure, in one piece, and end all ranks."""
        rank = f"rank {self.world.rank} of {self.world.size}"
        print(f"\n=== FAILED on {rank}: {what}", file=sys.stderr, flush=True)
        time.sleep(TIME_FOR_OTHER_RANKS_TO_REPORT)
        self.world.Abort(1)

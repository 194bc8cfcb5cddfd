"""What the tables say, and that every Python measure runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from driver.catalogue import OURS, Budget, Figure, Measure
from driver.install import Commands
from driver.report import BEGIN, END, Report, spread, write_markdown
from driver.schedule import Job, Outcome, Results, plan

FIGURES = (Figure("ns", "time, ns", Budget(50)), Figure("rate", "rate", Budget(2, at_least=True)))
MEASURE = Measure("rust", "submit", FIGURES, (OURS, "std"), ("quiet",))
FACTS = dict.fromkeys(("date", "processor", "cores", "memory"), "x")


def report(ours: dict[str, float]) -> Report:
    """Return a report of one process each."""
    results = Results()
    results.add(Job(0, MEASURE, "quiet", OURS), Outcome([ours]), 0.0)
    results.add(Job(0, MEASURE, "quiet", "std"), Outcome(errors=["fell over"]), 0.0)
    return Report(results, Commands(), FACTS)


def test_a_table_tells_figures_budgets_and_failures() -> None:
    text = report({"ns": 40, "rate": 1.5}).markdown()
    assert "| time, ns | ≤ 50 ✓ | 40 | - |" in text
    assert "| rate | ≥ 2 ✗ | 1.5 | - |" in text
    assert "std mpsc + thread, rust-submit, quiet: fell over." in text


def test_only_our_own_failure_fails_the_run() -> None:
    found = report({"ns": 40, "rate": 1.5})
    assert not found.ours_failed()
    found.commands.missing["python", OURS] = "not built"
    assert found.ours_failed()


def test_a_budget_can_be_another_peer() -> None:
    assert Budget("std").met(1, {"std": 2})
    assert Budget("std").met(3, {"std": 2}) is False
    assert Budget("std").met(3, {}) is None


def test_a_range_is_shown_where_processes_disagree() -> None:
    assert spread([4.6, 41.3, 4.5, 45, 44]) == "41.3 (4.5 to 45)"
    assert spread([1234.5, 1300, 1200]) == "1,234"
    assert spread([]) == "-"


def test_peers_take_turns() -> None:
    commands = Commands(found={("rust", OURS): [], ("rust", "std"): []})
    jobs = plan([MEASURE], ["quiet", "busy"], 2, commands)
    assert [(job.round, job.peer) for job in jobs] == [
        (0, OURS),
        (0, "std"),
        (1, OURS),
        (1, "std"),
    ]


def test_tables_are_renewed_between_the_marks(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_markdown(readme, "new\n")
    assert readme.read_text() == f"before\n{BEGIN}\nnew\n{END}\nafter\n"


def test_every_python_measure_runs() -> None:
    run = Path(__file__).with_name("run.py")
    command = [sys.executable, str(run), "--smoke", "--only", "python"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

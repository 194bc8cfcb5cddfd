"""Measure clika_runtime and its peers side by side, several processes each.

`make bench` runs it. The tables go to standard output, the progress to standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from driver import install, machine, schedule
from driver.catalogue import MEASURES, Measure, Mode
from driver.report import Report, write_markdown

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Run what the command line asks for; fails only if a measure of ours does."""
    arguments = parse()
    rounds = 1 if arguments.smoke else 2 if arguments.quick else arguments.processes
    modes: tuple[Mode, ...] = ("quiet",) if arguments.smoke else ("quiet", "busy")
    languages = {measure.language for measure in arguments.only}
    commands = install.prepare(ROOT, languages, smoke=arguments.smoke)
    jobs = list(schedule.plan(arguments.only, modes, rounds, commands))
    results = schedule.run(jobs, commands, smoke=arguments.smoke)
    report = Report(results, commands, machine.facts(ROOT))
    print(report.markdown())
    if arguments.json:
        arguments.json.write_text(json.dumps(report.json(), indent=1) + "\n")
    if arguments.markdown:
        write_markdown(arguments.markdown, report.markdown())
    return int(report.ours_failed())


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--processes", type=int, default=5, metavar="N", help="processes for each figure (5)")
    add("--quick", action="store_true", help="two processes for each figure")
    add("--smoke", action="store_true", help="only see that all of it runs; installs nothing")
    add("--only", type=chosen, default=MEASURES, metavar="A,B", help="measures, or rust or python")
    add("--json", type=Path, metavar="FILE", help="write every figure of every process")
    add("--markdown", type=Path, metavar="FILE", help="write the tables, or renew them in a README")
    return parser.parse_args()


def chosen(text: str) -> tuple[Measure, ...]:
    """Return the measures that `--only` names."""
    names = set(text.split(","))
    known = {name for m in MEASURES for name in (m.language, m.name, m.label)}
    if unknown := names - known:
        message = f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(sorted(known))}"
        raise argparse.ArgumentTypeError(message)
    return tuple(m for m in MEASURES if names & {m.language, m.name, m.label})


if __name__ == "__main__":
    sys.exit(main())

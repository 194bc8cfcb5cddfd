"""What a run found, as JSON and as a Markdown table."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from driver.catalogue import NOTE, OURS, PEERS, Figure, Language, Measure, Mode
from driver.install import Commands
from driver.schedule import Outcome, Results

MACHINE = ("processor", "cores", "memory")
NONE = "-"
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


class Report:
    """The results of a run with what is needed to read them."""

    def __init__(self, results: Results, commands: Commands, facts: dict[str, str]) -> None:
        self.results = results
        self.commands = commands
        self.facts = facts
        self.measures = list(dict.fromkeys(measure for measure, _, _ in results.outcomes))

    def values(self, measure: Measure, mode: Mode, peer: str, key: str) -> list[float]:
        """Return what each process found."""
        outcome = self.results.outcomes.get((measure, mode, peer), Outcome())
        return [figures[key] for figures in outcome.figures if key in figures]

    def met(self, measure: Measure, figure: Figure) -> bool | None:
        """Tell whether we keep a budget on the quiet machine; None if there is nothing to tell."""
        values = {p: self.values(measure, "quiet", p, figure.key) for p in measure.peers}
        medians = {peer: median(found) for peer, found in values.items() if found}
        if figure.budget is None or OURS not in medians:
            return None
        return figure.budget.met(medians[OURS], medians)

    def failures(self) -> list[str]:
        """Return what went wrong, a line each."""
        lines = [
            f"{PEERS[language][peer]} ({language}): not available: {why}"
            for (language, peer), why in self.commands.missing.items()
        ]
        for (measure, mode, peer), outcome in self.results.outcomes.items():
            name = f"{PEERS[measure.language][peer]}, {measure.label}, {mode}"
            lines += [f"{name}: {error}" for error in outcome.errors]
        return lines

    def ours_failed(self) -> bool:
        """Tell whether a measure of ours is missing or failed."""
        outcomes = self.results.outcomes.items()
        absent = any(peer == OURS for _, peer in self.commands.missing)
        return absent or any(peer == OURS and found.errors for (_, _, peer), found in outcomes)

    def json(self) -> dict[str, Any]:
        """Return everything that was found."""
        return {
            "machine": self.facts,
            "others": self.results.others,
            "failures": self.failures(),
            "results": [
                {
                    "language": measure.language,
                    "measure": measure.name,
                    "mode": mode,
                    "peer": peer,
                    "figures": outcome.figures,
                }
                for (measure, mode, peer), outcome in self.results.outcomes.items()
            ],
            "budgets": {
                f"{measure.label} {figure.key}": self.met(measure, figure)
                for measure in self.measures
                for figure in measure.figures
                if figure.budget
            },
        }

    def markdown(self) -> str:
        """Return the tables with what is needed to read them."""
        parts = [self.heading()]
        for language in PEERS:
            measures = [m for m in self.measures if m.language == language]
            if measures:
                parts.append(self.table(language, measures))
        if any("¹" in part for part in parts):
            parts.append(NOTE)
        parts += [f"{line}." for line in self.failures()]
        return "\n\n".join(parts) + "\n"

    def heading(self) -> str:
        """Say what was measured, where, and how."""
        facts, outcomes = self.facts, self.results.outcomes.values()
        machine = f"{facts['processor']}, {facts['cores']} cores, {facts['memory']}"
        versions = [text for key, text in facts.items() if key not in {"date", *MACHINE}]
        versions += sorted({text for o in outcomes for text in o.versions} - {*versions})
        processes = max((len(o.figures) for o in outcomes), default=0)
        others = median(self.results.others) if self.results.others else 0.0
        return (
            f"{facts['date']}, {machine}; {', '.join(versions)}.\n"
            f"Medians over {processes} processes, with their range where it is over twofold."
            " Where there are two figures, the second is with one core kept busy by another"
            " process; budgets are for the first.\n"
            f"Other programs used {others:.0%} of the machine."
        )

    def table(self, language: Language, measures: list[Measure]) -> str:
        """Return the table of one language."""
        ran = {peer for measure, _, peer in self.results.outcomes if measure in measures}
        peers = [peer for peer in PEERS[language] if peer in ran]
        head = [language.capitalize(), "budget", *(PEERS[language][peer] for peer in peers)]
        rows = [head, ["---", *["---:"] * (len(head) - 1)]]
        rows += [self.row(m, figure, peers) for m in measures for figure in m.figures]
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)

    def row(self, measure: Measure, figure: Figure, peers: list[str]) -> list[str]:
        """Return one row of a table."""
        budget = figure.budget.text(measure.language) if figure.budget else ""
        mark = {True: " ✓", False: " ✗", None: ""}[self.met(measure, figure)]
        cells = [self.cell(measure, peer, figure.key) for peer in peers]
        return [figure.title, budget + mark, *cells]

    def cell(self, measure: Measure, peer: str, key: str) -> str:
        """Return one peer's figure, in both modes where there are two."""
        texts = [spread(self.values(measure, mode, peer, key)) for mode in measure.modes]
        return NONE if set(texts) == {NONE} else " / ".join(texts)


def spread(values: list[float]) -> str:
    """Return the median, and the range where processes differ more than twofold."""
    if not values:
        return NONE
    low, high = min(values), max(values)
    differ = f" ({short(low)} to {short(high)})" if high > 2 * low else ""
    return short(median(values)) + differ


def short(value: float) -> str:
    """Return a number with three significant digits and no exponent."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.001 or value == 0 else f"{value:.4f}"


def write_markdown(path: Path, text: str) -> None:
    """Write the tables: between the two marks of a file that has them, else as the whole file."""
    old = path.read_text() if path.exists() else ""
    if BEGIN in old and END in old:
        text = f"{old.partition(BEGIN)[0]}{BEGIN}\n{text}{END}{old.partition(END)[2]}"
    path.write_text(text)

"""The page of methods under stress: each scenario's numbers beside those of ten equal sessions."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from safecl.outputs import write_output
from safecl.report import words
from safecl.report.colours import paired
from safecl.report.drawing import canvas, inline_svg, saved
from safecl.report.runs import Run
from safecl.report.series import all_series, mean
from safecl.report.table import Cell, Table, as_csv, as_markdown, make_table, numbers
from safecl.report.templates import make_folder, render, write

USUAL = "usual"  # the scenario that the others are compared with
ORDERS = ("like-together", "like-apart")


@dataclass(frozen=True)
class Result:
    """What a preset did in a scenario. ``strangers``: mean AUROC over sessions."""

    scenario: str
    title: str
    preset: str
    sessions: int
    final: float | None
    average: float | None
    forgetting: float | None
    plasticity: float | None
    strangers: float | None
    seconds: float
    kept: float | None


def result(scenario: str, title: str, preset: str, run: Run) -> Result:
    """Of a finished run, the answers of its main output."""
    main = all_series([run])[0]
    learned = [
        (line.seconds.get("total") or 0.0) - (line.seconds.get("evaluate") or 0.0)
        for line in run.metrics
    ]
    strange = [line.metrics.get("strangers", {}).get(main.output) for line in run.metrics]
    return Result(
        scenario,
        title,
        preset,
        run.done,
        main.final,
        main.average_seen,
        main.forgetting,
        main.metrics.get("plasticity"),
        mean(strange),
        sum(learned),
        run.last.bytes_kept if run.last else None,
    )


def by_scenario(results: Sequence[Result]) -> Table:
    """Final accuracies: a row for each scenario, a column for each preset."""
    presets = list(dict.fromkeys(one.preset for one in results))
    found = {(one.scenario, one.preset): one for one in results}
    rows = []
    for scenario, title in dict.fromkeys((one.scenario, one.title) for one in results):
        finals = [
            found[scenario, preset].final if (scenario, preset) in found else None
            for preset in presets
        ]
        there = [value for value in finals if value is not None]
        best = max(there) if len(there) > 1 else None
        cells = [
            Cell(words.bare_percent(value), best=best is not None and value == best, value=value)
            for value in finals
        ]
        rows.append([Cell(title), *cells])
    return make_table("Final accuracy, %", ["Scenario", *presets], rows)


def every_number(results: Sequence[Result]) -> Table:
    """A row for each run."""
    usual = {one.preset: one.final for one in results if one.scenario == USUAL}
    rows = []
    for one in results:
        before = usual.get(one.preset)
        lost = None if one.final is None or before is None else one.final - before
        cells = [Cell(one.title), Cell(one.preset), Cell(str(one.sessions), value=one.sessions)]
        cells += numbers(words.bare_percent, one.final)
        cells += numbers(words.points, lost)
        cells += numbers(words.bare_percent, one.average)
        cells += numbers(words.points, one.forgetting)
        cells += numbers(words.bare_percent, one.plasticity, one.strangers)
        cells += numbers(words.duration, one.seconds)
        cells += numbers(words.size, one.kept)
        rows.append(cells)
    heads = ["Scenario", "Preset", "Sessions", "Final", "Against usual", "Average", "Forgetting"]
    heads += ["Plasticity", "Strangers (AUROC)", "Seconds of learning", "Kept"]
    return make_table("Every number", heads, rows, words=("Preset",))


def sentences(results: Sequence[Result]) -> list[str]:
    """The worse class order of each preset, and its worst scenario."""
    found = []
    for preset in dict.fromkeys(one.preset for one in results):
        mine = [one for one in results if one.preset == preset and one.final is not None]
        orders = [one for one in mine if one.scenario in ORDERS]
        said = []
        if len(orders) == len(ORDERS):
            worse, better = sorted(orders, key=lambda one: one.final or 0.0)
            said.append(
                f"class orders between {words.bare_percent(worse.final)} ({worse.title}) and"
                f" {words.bare_percent(better.final)} %"
            )
        if harder := [one for one in mine if one.scenario != USUAL]:
            worst = min(harder, key=lambda one: one.final or 0.0)
            said.append(f"worst: {worst.title}, {words.bare_percent(worst.final)} %")
        if said:
            found.append(f"{preset}: {'; '.join(said)}.")
    return found


def figure(results: Sequence[Result]) -> Figure:
    """A dot for each run, a line for each scenario."""
    scenarios = list(dict.fromkeys(one.title for one in results))
    presets = list(dict.fromkeys(one.preset for one in results))
    colours = paired(presets)
    with canvas((7.0, 0.8 + 0.34 * len(scenarios))) as (drawn, (axes,)):
        for preset in presets:
            mine = [one for one in results if one.preset == preset and one.final is not None]
            axes.plot(
                [100 * (one.final or 0.0) for one in mine],
                [scenarios.index(one.title) for one in mine],
                linestyle="none",
                marker=colours[preset].marker,
                color=colours[preset].light,
                markersize=7,
                alpha=0.85,
                label=preset,
            )
        axes.set_yticks(range(len(scenarios)), scenarios)
        axes.set_ylim(len(scenarios) - 0.5, -0.5)  # the first on top
        axes.set_xlabel("final accuracy, %")
        drawn.legend(loc="outside upper left", ncols=min(4, len(presets)))
    return drawn


def write_all(
    folder: Path,
    results: Sequence[Result],
    left_out: Sequence[str],
    about: str,
    command: str = "",
) -> list[Path]:
    """The page, the tables as CSV and Markdown, and the figure as SVG."""
    make_folder(folder)
    tables = [by_scenario(results), every_number(results)]
    files = [
        write(folder / "stress.csv", as_csv(tables[1]), "csv"),
        write(folder / "stress.md", as_markdown(tables[0]), "md"),
    ]
    drawing = None
    if results:
        alt = f"Final accuracy of each preset in each scenario. {' '.join(sentences(results))}"
        drawing = inline_svg(figure(results), alt, "stress")
        write_output(folder / "stress.svg", saved(figure(results), "svg"), "svg")
        files.append(folder / "stress.svg")
    html = render(
        "stress.html",
        title="Under stress",
        about=about,
        sentences=sentences(results),
        drawing=drawing,
        tables=tables,
        left_out=left_out,
        command=command,
    )
    return [write(folder / "stress.html", html), *files]

"""The report's sentences and numbers, as a person reads them."""

from collections.abc import Sequence

from safecl.report.runs import Run
from safecl.report.series import Series

NONE = "–"
NBSP, THIN = "\u00a0", "\u202f"


def percent(value: float | None) -> str:
    """0.782 → "78.2 %"."""
    return NONE if value is None else f"{100 * value:.1f}{NBSP}%"


def bare_percent(value: float | None) -> str:
    """0.782 → "78.2", where the unit stands elsewhere."""
    return NONE if value is None else f"{100 * value:.1f}"


def points(value: float | None) -> str:
    """A difference of accuracies in percentage points: 0.031 → "3.1"."""
    return NONE if value is None else f"{100 * value:.1f}".replace("-0.0", "0.0").replace("-", "−")


def count(value: float | None) -> str:
    """12345 → "12 345"."""
    return NONE if value is None else f"{value:,.0f}".replace(",", THIN)


def size(value: float | None) -> str:
    """Bytes in decimal units: 1234567 → "1.2 MB"."""
    if value is None:
        return NONE
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 999.5 or unit == "GB":
            break
        value /= 1000
    return f"{value:.0f}{NBSP}{unit}" if unit == "B" or value >= 100 else f"{value:.1f}{NBSP}{unit}"


def duration(seconds: float | None) -> str:
    """12.34 → "12.3 s"; 192 → "3 min 12 s"; 7260 → "2 h 1 min"."""
    if seconds is None:
        return NONE
    if round(seconds) < 60:
        return f"{seconds:.1f}{NBSP}s" if seconds < 20 else f"{seconds:.0f}{NBSP}s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}{NBSP}min {whole % 60}{NBSP}s"
    return f"{whole // 3600}{NBSP}h {whole % 3600 // 60}{NBSP}min"


def plural(number: int, word: str) -> str:
    """ "1 session", "5 sessions", "3 classes"."""
    if number != 1:
        word += "es" if word.endswith("s") else "s"
    return f"{number}{NBSP}{word}"


def listed(parts: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def inside(name: str) -> str:
    """A method's name in the middle of a sentence."""
    return name.replace("Fine-tuning", "fine-tuning")


def upper_first(sentence: str) -> str:
    """The sentence with a capital first letter."""
    return sentence[:1].upper() + sentence[1:]


def headline(series: Sequence[Series]) -> str:
    """The result in one sentence, from the main outputs: what each method knows after how much learning."""
    known = [one for one in series if one.main and one.final is not None]
    if not known:
        return "No session is finished yet."
    moments = [_moment(one.run) for one in known]
    if len(set(moments)) == 1:
        parts = [f"{inside(one.name)}{' knows' if i == 0 else ''} {percent(one.final)}" for i, one in enumerate(known)]
        return f"After {moments[0]} {listed(parts)}."
    parts = [f"{inside(one.name)} knows {percent(one.final)} after {m}" for one, m in zip(known, moments, strict=True)]
    return upper_first("; ".join(parts)) + "."


def progress(runs: Sequence[Run], names: Sequence[str]) -> list[str]:
    """A sentence for each run that is not finished."""
    return [
        f"{name} is not finished: {run.done} of {plural(run.total, 'session')} done."
        for run, name in zip(runs, names, strict=True)
        if run.done < run.total
    ]


def remembered(series: Sequence[Series]) -> str:
    """What is left of the first session: the plainest way to say forgetting."""
    parts = []
    for one in series:
        first, last = one.rows.get(1, []), one.rows.get(one.run.done, [])
        if one.main and one.run.done > 1 and first and last and first[0] is not None and last[0] is not None:
            parts.append(f"{inside(one.name)} {bare_percent(first[0])} → {percent(last[0])}")
    return f"The first session, then and now: {listed(parts)}." if parts else ""


def curve_label(series: Sequence[Series]) -> str:
    """The accuracy curves for someone who cannot see them."""
    lines = [
        f"{one.name}: {', '.join(f'{100 * value:.1f}' for _, value in one.pooled) or 'nothing yet'}" for one in series
    ]
    return "Accuracy in percent on everything seen, after each session. " + ". ".join(lines) + "."


def bars_label(one: Series) -> str:
    """A panel of session bars for someone who cannot see it."""
    row = one.rows.get(one.run.done, [])
    values = ", ".join(f"{i}: {100 * value:.1f}" for i, value in enumerate(row, start=1) if value is not None)
    return f"{one.name}: final accuracy in percent for each session. {values}"


def _moment(run: Run) -> str:
    """How much a run has learned: "5 sessions and 50 classes"."""
    classes = plural(run.last.classes_seen if run.last else 0, "class")
    word = "domain" if run.facts.stream.protocol == "domain" else "session"
    done = plural(run.done, word) if run.done == run.total else f"{run.done} of {plural(run.total, word)}"
    return f"{done} of the same {classes}" if word == "domain" else f"{done} and {classes}"

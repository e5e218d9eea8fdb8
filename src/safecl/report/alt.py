"""Figures in words, for whoever cannot see them."""

from collections.abc import Mapping, Sequence

from safecl.report import words
from safecl.report.answers import Confusion, Map, Weight
from safecl.report.series import Series


def curves(series: Sequence[Series]) -> str:
    """The accuracy curves."""
    lines = [
        f"{one.name}: {', '.join(f'{100 * value:.1f}' for _, value in one.pooled) or 'nothing yet'}" for one in series
    ]
    return f"Accuracy in percent on {words.tested(series)}, after each session. " + ". ".join(lines) + "."


def bars(one: Series) -> str:
    """A panel of session bars."""
    row = one.rows.get(one.run.done, [])
    values = ", ".join(f"{i}: {100 * value:.1f}" for i, value in enumerate(row, start=1) if value is not None)
    return f"{one.name}: final accuracy in percent for each session. {values}"


def weights(name: str, found: Sequence[Weight]) -> str:
    """The aggregation weights."""
    sessions: dict[int, list[float]] = {}
    for one in found:
        sessions.setdefault(one.session, []).append(one.weights.get("fast", 0.5))
    parts = [f"session {t}: {100 * sum(values) / len(values):.1f}" for t, values in sorted(sessions.items())]
    return f"{name}: mean weight of the fast learner in percent, by the session of a class. {', '.join(parts)}"


def feature_map(name: str, found: Map) -> str:
    """A map of features."""
    return f"{name}: t-SNE of the features of {found.network}. {neighbours(found)}"


def neighbours(found: Map) -> str:
    """ "71.0 % have a nearest neighbour of their own class."."""
    return f"{words.percent(found.near)} of the pictures have a nearest neighbour of their own class."


def confusion(name: str, found: Confusion) -> str:
    """A matrix of confusions."""
    parts = [
        f"{label} as {found.labels[j]} {times}"
        for label, row in zip(found.labels, found.counts, strict=True)
        for j, times in enumerate(row)
        if times and found.labels[j] != label
    ]
    return f"{name}: answers among the classes that are confused most often. {', '.join(parts)}"


def losses(name: str, phase: str, terms: Sequence[str]) -> str:
    """Loss curves."""
    return (
        f"{name}: loss of the phase {phase} over all steps ({words.listed(list(terms))}); its numbers are in the table"
    )


def times(name: str, parts: Mapping[str, Sequence[float]]) -> str:
    """The seconds of each part."""
    return f"{name}: seconds by session. " + ". ".join(
        f"{part}: {', '.join(f'{value:.1f}' for value in values)}" for part, values in parts.items()
    )


def kept(series: Sequence[Series]) -> str:
    """What is kept."""
    parts = [f"{one.name}: {words.size(one.run.last.bytes_kept)}" for one in series if one.run.last]
    return f"Bytes kept after each session; at the end {', '.join(parts)}"


def validation(one: Series) -> str:
    """Validation beside test."""
    test, held = (", ".join(f"{100 * value:.1f}" for _, value in each) for each in (one.pooled, one.validation))
    return f"{one.name}: accuracy in percent after each session, on test pictures {test}; on held-out pictures {held}"


def matrix(one: Series) -> str:
    """The matrix R."""
    return f"{one.name}: accuracy on each session's test pictures (columns) after each session (rows), in percent"

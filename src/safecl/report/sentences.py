"""The report's sentences."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from safecl.lines import NBSP
from safecl.report import words
from safecl.report.runs import Run, read_run
from safecl.report.series import Series, all_series, by_stream, stream_key

MAX_NAMED = 3  # runs that a headline names


def spread(one: Series, kind: str = "final") -> float | None:
    """Of an accuracy at the end: over seeds their standard deviation, of one run its standard
    error.
    """
    value = getattr(one, kind)
    deviation = one.deviation(kind)
    last = one.run.last
    if deviation is not None or value is None or last is None:
        return deviation
    counts = last.test_counts[: one.run.done if kind == "final_seen" and one.run.domain else None]
    if kind == "final_validation":
        counts = last.validation.counts if last.validation else []
    return words.standard_error(value, sum(counts)) if sum(counts) else None


def plus_minus(one: Series, kind: str) -> str:
    error = spread(one, kind)
    return "" if error is None else f"±{NBSP}{100 * error:.1f}"


def measured(one: Series, kind: str = "final") -> str:
    """An accuracy with its spread: "78.2 ± 1.8 %"."""
    value = getattr(one, kind)
    error = plus_minus(one, kind)
    return f"{100 * value:.1f}{NBSP}{error}{NBSP}%" if value is not None and error else words.NONE


def seeds(series: Sequence[Series]) -> str:
    """ "3 seeds", where every configuration has as many; "1 to 3 seeds" where not; empty where each
    has one.
    """
    counts = [len(one.runs) for one in series] or [1]
    fewest = min(counts)
    most = max(counts)
    some = f"{fewest} to " if fewest < most else ""
    return f"{some}{words.plural(most, 'seed')}" if most > 1 else ""


def headline(series: Sequence[Series]) -> str:
    """The result in one sentence, from the main outputs: what each method knows after how much
    learning.
    """
    known = [one for one in series if one.main and one.final_seen is not None]
    if not known:
        done = any(one.run.done for one in series)
        return "No test picture, so no accuracy." if done else "No session is finished yet."
    if len(by_stream(known)) > 1:
        return f"{runs_on_streams([run for one in series if one.main for run in one.runs])}."
    over = seeds(known)
    if len(known) > MAX_NAMED:
        kind = (
            f"{words.plural(len(known), 'configuration')}, {over} each"
            if over
            else words.plural(len(known), "run")
        )
        best = max(known, key=lambda one: one.final_seen or 0.0)
        return f"{kind}. Best: {best.name}, {words.percent(best.final_seen)}."
    moments = [_moment(one.run) for one in known]
    names = [one.name for one in known]
    values = [measured(one, "final_seen") for one in known]
    if len(set(moments)) == 1:
        names[0] += " knows"
        parts = [f"{name} {value}" for name, value in zip(names, values, strict=True)]
        return (
            f"After {moments[0]}"
            f" {words.listed(parts)}{f', over {over}' if over else ''}.{_ahead(known)}"
        )
    parts = [
        f"{name} knows {value} after {when}"
        for name, value, when in zip(names, values, moments, strict=True)
    ]
    return "; ".join(parts) + "."


def _ahead(known: Sequence[Series]) -> str:
    """By how much the best run is above the next, ± the standard error of the difference, picture
    by picture.
    """
    asked = [(one.run.facts.seed, *(each.label for each in one.run.predictions)) for one in known]
    if len(known) < 2 or seeds(known) or len(set(asked)) > 1 or len(asked[0]) < 3:
        return ""  # not the same pictures
    ranked = sorted(known, key=lambda one: -(one.final_seen or 0.0))[:2]
    best, second = (
        [one.run.said(each) == each.label for each in one.run.predictions] for one in ranked
    )
    gaps = [mine - other for mine, other in zip(best, second, strict=True)]
    error = stdev(gaps) / math.sqrt(len(gaps))
    above = f"{words.points(fmean(gaps))}{NBSP}±{NBSP}{words.points(error)} points above"
    return f" {ranked[0].name} is {above} {ranked[1].name}, picture by picture."


def runs_on_streams(runs: Sequence[Run]) -> str:
    """ "4 runs on 2 streams"."""
    return (
        f"{words.plural(len(runs), 'run')} on"
        f" {words.plural(len({stream_key(run) for run in runs}), 'stream')}"
    )


def result(one: Series) -> str:
    """The end of a run in one line, for one output."""
    run = one.run
    if one.final is None:
        return f"{one.name}: {words.NONE}"
    final = (
        f"{one.name}: {words.accuracy(one.final, run.tested)} of"
        f" {words.plural(run.tested, 'test picture')}"
    )
    average = words.percent(one.average)
    seen = words.percent(one.average_seen)
    if run.domain:
        means = f"{seen} on the domains learned so far and {average} on all of them"
        return (
            f"{final} of {words.plural(run.total, 'domain')} at the end; on average over sessions"
            f" {means}"
        )
    return (
        f"{final} of {words.plural(run.classes, 'class')} at the end, {average} on average over"
        " sessions"
    )


def results(folder: Path) -> list[str]:
    """The end of a run, one line per output."""
    return [result(one) for one in all_series([read_run(folder)])]


def remembered(series: Sequence[Series]) -> str:
    """What is left of the session of which one of them has forgotten most: the plainest way to say
    forgetting.
    """
    found = []
    for one in series:
        for session in range(1, one.run.done):
            then = one.accuracy(session, session)
            now = one.accuracy(one.run.done, session)
            found += [] if then is None or now is None else [(one.name, session, then, now)]
    if not found:
        return ""
    worst = max(found, key=lambda each: each[2] - each[3])[1]
    parts = [
        f"{name} {100 * then:.1f} → {words.percent(now)}"
        for name, session, then, now in found
        if session == worst
    ]
    return f"Session {worst}, then and now: {words.listed(parts)}."


def tested(series: Sequence[Series]) -> str:
    """What ``pooled`` accuracies are on."""
    domain = [one.run.domain for one in series]
    if domain and all(domain):
        return "the test pictures of all domains, also those to come"
    more = " (of a domain-incremental stream: of all domains)" if any(domain) else ""
    return f"the test pictures of everything learned so far{more}"


def _moment(run: Run) -> str:
    """How much a run has learned: "5 sessions and 50 classes"."""
    classes = words.plural(run.classes, "class")
    word = "domain" if run.domain else "session"
    done = (
        words.plural(run.done, word)
        if run.done == run.total
        else f"{run.done} of {words.plural(run.total, word)}"
    )
    return f"{done} of the same {classes}" if word == "domain" else f"{done} and {classes}"

"""The report's sentences."""

from collections.abc import Sequence
from pathlib import Path

from safecl.lines import NBSP
from safecl.report.runs import Run, read_run
from safecl.report.series import Series, all_series, run_names, stream_key
from safecl.report.words import NONE, accuracy, bare_percent, inside, listed, percent, plural, spread, upper_first

MAX_NAMED = 3  # runs or streams that a headline names
MIN_TESTED = 5  # test pictures per class below which an accuracy is rough


def measured(one: Series, kind: str = "final") -> str:
    """An accuracy, "final" or "final_seen", with its spread: "78.2 ± 1.8 %"."""
    value, error = getattr(one, kind), plus_minus(one, kind)
    return f"{100 * value:.1f}{NBSP}{error}{NBSP}%" if value is not None and error else NONE


def plus_minus(one: Series, kind: str = "final") -> str:
    """The spread of an accuracy: over seeds their standard deviation, of one run its standard error."""
    deviation = one.deviation(kind)
    if deviation is not None:
        return f"±{NBSP}{100 * deviation:.1f}"
    return spread(getattr(one, kind), one.run.tested if kind == "final" else one.run.learned_pictures)


def validated(one: Series) -> str:
    """The newest accuracy on held-out training pictures: mean over seeds, or of one run with its standard error."""
    value = dict(one.validation).get(one.run.done)
    held = one.run.last.validation if one.run.last else None
    if len(one.runs) > 1:
        return percent(value)
    return NONE if held is None else accuracy(value, sum(held.counts))


def seeds(series: Sequence[Series]) -> str:
    """ "3 seeds", where every configuration has as many; "1 to 3 seeds" where not; empty where each has one."""
    counts = {len(one.runs) for one in series} or {1}
    if max(counts) == 1:
        return ""
    return plural(max(counts), "seed") if len(counts) == 1 else f"{min(counts)} to {plural(max(counts), 'seed')}"


def headline(series: Sequence[Series]) -> str:
    """The result in one sentence, from the main outputs: what each method knows after how much learning."""
    known = [one for one in series if one.main and one.final_seen is not None]
    if not known:
        done = any(one.run.done for one in series)
        return "No test picture, so no accuracy." if done else "No session is finished yet."
    streams: dict[tuple[str, ...], list[Series]] = {}
    for one in known:
        streams.setdefault(stream_key(one.run), []).append(one)
    if len(streams) > 1:
        start = runs_on_streams([run for one in series if one.main for run in one.runs])
        named = [ones[0].run.facts.stream.name for ones in streams.values()]
        parts = [f"on {_place(ones[0].run, named)}: {_best(ones)}" for ones in streams.values()]
        return f"{start}. Best {'; '.join(parts)}." if len(parts) <= MAX_NAMED else f"{start}."
    over = seeds(known)
    if len(known) > MAX_NAMED:
        kind = f"{plural(len(known), 'configuration')}, {over} each" if over else plural(len(known), "run")
        return f"{kind}. Best: {_best(known)}."
    moments = [_moment(one.run) for one in known]
    if len(set(moments)) == 1:
        parts = [f"{inside(one.name)}{' knows' if i == 0 else ''} {_known(one)}" for i, one in enumerate(known)]
        return f"After {moments[0]} {listed(parts)}{f', over {over}' if over else ''}."
    parts = [
        f"{inside(one.name)} knows {_known(one)} after {moment}" for one, moment in zip(known, moments, strict=True)
    ]
    return upper_first("; ".join(parts)) + "."


def runs_on_streams(runs: Sequence[Run]) -> str:
    """ "4 runs on 2 streams"."""
    return f"{plural(len(runs), 'run')} on {plural(len({stream_key(run) for run in runs}), 'stream')}"


def _best(series: Sequence[Series]) -> str:
    """The best of the methods on one stream: "SAFE, 58.0 %"; several if they are equally good."""
    names = run_names([one.run for one in series])
    best = max(one.final_seen or 0.0 for one in series)
    winners = [inside(name) for name, one in zip(names, series, strict=True) if one.final_seen == best]
    return f"{listed(winners) if len(winners) <= MAX_NAMED else plural(len(winners), 'run')}, {percent(best)}"


def _place(run: Run, named: Sequence[str]) -> str:
    """A stream's name; of streams that share it, also the number of sessions."""
    name = run.facts.stream.name
    return name if named.count(name) == 1 else f"{name} in {plural(run.total, 'session')}"


def covered(series: Sequence[Series]) -> list[str]:
    """A sentence for each group of curves that lie on each other."""
    groups: dict[tuple[tuple[int, float], ...], list[str]] = {}
    for one in series:
        groups.setdefault(tuple(one.pooled), []).append(one.name)
    return [
        f"{upper_first(listed([inside(name) for name in names]))} have the same accuracy after every session, so one "
        "curve covers the other" + ("s." if len(names) > 2 else ".")
        for pooled, names in groups.items()
        if pooled and len(names) > 1
    ]


def progress(named: Sequence[tuple[Run, str]]) -> list[str]:
    """A sentence for each run that is not finished."""
    return [
        f"{name} failed: {run.failed}"
        if run.state == "failed"
        else f"{name} is not finished: {run.done} of {plural(run.total, 'session')} done."
        for run, name in named
        if run.state != "finished" and (run.failed or run.done < run.total)
    ]


def caveats(runs: Sequence[Run]) -> list[str]:
    """What to know before these numbers are believed."""
    found = []
    learned = [(run, run.last.classes_seen) for run in runs if run.last]
    if any(not run.tested for run, _ in learned):
        found.append(
            "There is no accuracy because there is no test picture: with one picture per class, none can be held out."
        )
    if any(0 < run.tested < MIN_TESTED * classes for run, classes in learned):
        fewest = min(run.tested for run, _ in learned if run.tested)
        found.append(f"Only {plural(fewest, 'test picture')}: differences within ± may be chance.")
    if any(classes == 1 for _, classes in learned):
        found.append("With a single class every answer is right.")
    return found


def result(one: Series) -> str:
    """The end of a run in one line, for one output."""
    run, facts = one.run, one.run.facts
    if one.final is None:
        return f"{one.name}: {NONE}"
    final = f"{one.name}: {accuracy(one.final, run.tested)}"
    pictures = plural(run.tested, "test picture")
    if facts.stream.protocol == "domain":
        means = f"{percent(one.average_seen)} on the domains learned so far and {percent(one.average)} on all of them"
        return f"{final} of {pictures} of {plural(run.total, 'domain')} at the end; on average over sessions {means}"
    classes = plural(run.last.classes_seen if run.last else 0, "class")
    return f"{final} of {pictures} of {classes} at the end, {percent(one.average)} on average over sessions"


def results(folder: Path) -> list[str]:
    """The end of a run, one line per output, and what to know about its numbers."""
    run = read_run(folder)
    return [*(result(one) for one in all_series([run])), *caveats([run])]


def same(run: Run) -> str:
    """Why the parts of a method answer like the method itself."""
    later = [line.notes for line in run.metrics[1:]]
    if not {"slow", "fast"} <= set(run.facts.outputs):
        return "They were right equally often after every session."
    if run.done == 1:
        return "After the first session the fast learner is a copy of the slow one."
    if run.facts.pet in (None, "none"):
        return "Without a PET nothing is tuned, so both learners are the backbone."
    moved = [notes["average"] for notes in later if "average" in notes]
    if moved:
        return f"The fast learner kept at most {percent(max(moved))} of a session's tuning, which changed no accuracy."
    return "They were right equally often after every session."


def remembered(series: Sequence[Series]) -> str:
    """What is left of the first session: the plainest way to say forgetting."""
    parts = []
    for one in series:
        first, last = one.rows.get(1, []), one.rows.get(one.run.done, [])
        if one.main and one.run.done > 1 and first and last and first[0] is not None and last[0] is not None:
            parts.append(f"{inside(one.name)} {bare_percent(first[0])} → {percent(last[0])}")
    return f"The first session, then and now: {listed(parts)}." if parts else ""


def tested(series: Sequence[Series]) -> str:
    """What ``pooled`` accuracies are on."""
    domain = [one.run.facts.stream.protocol == "domain" for one in series]
    if domain and all(domain):
        return "the test pictures of all domains, also those to come"
    return "the test pictures of everything learned so far" + (
        " (of a domain-incremental stream: of all domains)" if any(domain) else ""
    )


def _known(one: Series) -> str:
    return measured(one, "final_seen")


def _moment(run: Run) -> str:
    """How much a run has learned: "5 sessions and 50 classes"."""
    classes = plural(run.last.classes_seen if run.last else 0, "class")
    word = "domain" if run.facts.stream.protocol == "domain" else "session"
    done = plural(run.done, word) if run.done == run.total else f"{run.done} of {plural(run.total, word)}"
    return f"{done} of the same {classes}" if word == "domain" else f"{done} and {classes}"

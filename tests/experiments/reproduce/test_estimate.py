"""Time and disk are estimated from what a run reads, trains and keeps."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from safecl.experiments.config import load
from safecl.experiments.reproduce import estimate as module
from safecl.experiments.reproduce.estimate import Size, estimate, kept, passes, stream_size
from safecl.experiments.reproduce.plan import make_job
from safecl.experiments.reproduce.targets import read_scale, read_target
from safecl.streams.catalog import open_stream
from safecl.streams.settings import parse_stream


@pytest.mark.parametrize("protocol", ["class", "domain"])
def test_the_size_of_a_glyphs_stream_is_counted_right(protocol: str) -> None:
    settings = parse_stream(
        {"kind": "glyphs", "protocol": protocol, "classes": 6, "sessions": 3, "train": 2, "test": 4}
    )
    stream = open_stream(settings)
    tested = sum(len(stream.test(i)) for t in range(1, 4) for i in stream.tested(t))
    sessions = [len(session.train) for session in stream]
    assert stream_size(settings) == Size(sessions[0], sum(sessions), tested, len(stream.labels))


def test_the_size_of_a_folder_is_counted_right(class_folder) -> None:
    folder: Path = class_folder({"train/a": 3, "train/b": 3, "test/a": 2, "test/b": 2})
    assert stream_size(parse_stream(f"folder:{folder}").model_copy(update={"step": 1})) == Size(3, 6, 6, 2)


def test_more_epochs_more_sessions_that_train_and_larger_heads_cost_more() -> None:
    def run(preset: str, *words: str) -> float:
        return passes(load(preset, words))

    assert run("simplecil") < run("ranpac") < run("safe") < run("safe", "train.epochs=40")
    small, large, both = (load("safe", words) for words in (
        ["ridge.size=1000"], ["ridge.size=10000"], ["ridge.size=10000", "method.answer.statistics=stale"]))  # fmt: skip
    assert kept(small) < kept(large) < kept(both)
    assert kept(large) == pytest.approx(2 * 4 * (10**4 * 10001 / 2 + 2 * 10**4 * 50), rel=0.05)
    assert kept(both) == pytest.approx(2 * kept(large), rel=0.05)


def test_finished_runs_correct_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "rate", lambda settings: 100.0)
    cells = make_job(read_target("table-ablation"), read_scale("small"), "safe", repeat=3).cells
    before, after = cells[:4], cells[4:]
    alone = sum(passes(cell.settings) for cell in after) / 100
    first = estimate(after, [], 2)
    assert not first.measured and first.seconds == pytest.approx(alone + module.START_SECONDS * len(after) / 2)
    slow: Any = [(cell, SimpleNamespace(seconds=3 * passes(cell.settings) / 100)) for cell in before]
    found = estimate(after, slow, 2)
    assert found.measured and found.seconds == pytest.approx(3 * alone / 2 + module.START_SECONDS * len(after) / 2)
    assert found.bytes == first.bytes == sum(kept(cell.settings) for cell in after)

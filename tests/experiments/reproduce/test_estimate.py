"""Time and disk are estimated from what a run reads, trains and keeps."""

from pathlib import Path

import pytest

from safecl.experiments.config import load
from safecl.experiments.reproduce.estimate import Size, kept, passes, stream_size
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
        return passes(load(preset, ["stream=imagenet-a", *words]))

    assert run("simplecil") < run("ranpac") < run("safe") < run("safe", "train.epochs=40")
    small, large, both = (load("safe", ["stream=imagenet-a", *words]) for words in (
        ["ridge.size=1000"], ["ridge.size=10000"], ["ridge.size=10000", "method.aggregation=concat"]))  # fmt: skip
    assert kept(small) < kept(large) < kept(both)
    assert kept(large) == pytest.approx(2 * 2 * 4 * (10**4 * 10001 / 2 + 2 * 10**4 * 200), rel=0.05)

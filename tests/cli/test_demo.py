"""``safecl demo``: what its words mean to each of the three methods."""

import re

import pytest

from safecl.cli import demo
from safecl.experiments.config import load
from tests.conftest import raises


def test_a_setting_reaches_each_method_that_has_it_and_no_other() -> None:
    words = [
        "method.pilots.use=true",
        "method.pilots.epochs=0.5",
        "ridge.size=99",
        "method.body_rate=2",
        "train.epochs=1",
    ]
    found = {
        method: load("demo", demo.chosen_for(method, words)).model_dump() for method in demo.METHODS
    }
    safe, ranpac, finetune = (found[method]["method"] for method in ("safe", "ranpac", "finetune"))
    assert (safe["pilots"]["epochs"], safe["ridge"]["size"], ranpac["ridge"]["size"]) == (
        0.5,
        99,
        99,
    )
    assert ranpac["body_rate"] == 2 and "ridge" not in finetune
    assert [each["train"]["epochs"] for each in found.values()] == [1, 1, 1]


def test_a_setting_of_training_reaches_each_method_that_trains_by_it() -> None:
    words = ["train.later_epochs=2", "train.clip=1", "pet=none"]
    chosen = {method: demo.chosen_for(method, words)[1:] for method in demo.METHODS}
    assert chosen == {"safe": words, "ranpac": ["pet=none"], "finetune": words}
    with raises("setting.idle", key="train.decay"):  # to none of them
        demo.run_demo(["train.decay=0.5"], show="quiet")


def test_a_word_that_is_wrong_for_one_method_stops_the_demo_before_the_first_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(demo, "launch", lambda *_, **__: pytest.fail("a method has begun to learn"))
    with raises(
        "setting.value.wrong", key=re.compile("body_rate")
    ):  # of RanPAC, which is the second
        demo.run_demo(["method.body_rate=-2"], show="quiet")

"""Classes leave a model, and models become one: compared with a model that learned so in the first
place.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from safecl.classifier.answers.snapshot import evaluate
from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.data import labelled
from safecl.classifier.edits.merge import merge
from safecl.classifier.modelfile.history import counts
from tests.conftest import raises

New = Callable[..., ContinualClassifier]
Lesson = Callable[..., tuple[np.ndarray, list[Any]]]


def slow(model: ContinualClassifier, images: np.ndarray) -> dict[Any, torch.Tensor]:
    """The slow learner's logits by class."""
    found = torch.cat([found["slow"] for found in model._snapshot().scored(_pictures(images))])
    return {label: found[:, i] for i, label in enumerate(model._fitted.classes)}


def _pictures(images: np.ndarray) -> Any:
    from safecl.classifier.data import unlabelled

    return unlabelled(images)


def same(one: dict[Any, torch.Tensor], other: dict[Any, torch.Tensor], atol: float = 1e-4) -> bool:
    return one.keys() == other.keys() and all(
        torch.allclose(one[k], other[k], atol=atol) for k in one
    )


def reopened(model: ContinualClassifier, path: Path) -> ContinualClassifier:
    model.save(path, force=True)
    return ContinualClassifier.load(path, device="cpu")


@pytest.mark.parametrize(
    ("memory", "replayed", "untuned"),
    [("statistics", 512, False), ("features", 0, False), ("features", 0, True)],
    indirect=["untuned"],
)
def test_a_class_is_forgotten_as_if_it_had_never_been_added(
    memory: str,
    replayed: int,
    untuned: bool,
    new_model: New,
    lesson: Lesson,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("safecl.classifier.modelfile.state.REPLAYED", replayed)
    models = []
    for classes in ("ef", "e"):
        model = new_model(memory=memory, settings={"beyond": int(untuned)})
        model.learn(*lesson("abcd"))
        images, labels = lesson("ef")
        rows = [i for i, label in enumerate(labels) if label in classes]
        model.learn(images[rows], [labels[i] for i in rows])
        models.append(reopened(model, tmp_path / f"{classes}.safecl"))
    said = models[0].forget("f")
    assert "its 5 pictures have left the sums over all classes" in said
    images = lesson("abcdef", seed=3)[0]
    # by subtraction
    assert same(slow(models[0], images), slow(models[1], images), 1e-4 if replayed else 1e-3)
    again = reopened(models[0], tmp_path / "again.safecl")
    assert (again.predict_proba(images) == models[0].predict_proba(images)).all()
    with raises("rollback.not-kept"):
        models[0].rollback()
    told = models[0].learn(*lesson("f"))  # the same pictures are new to it
    assert told.new == ["f"] and told.skipped == 0


def test_what_stays_of_a_forgotten_class_is_said(
    new_model: New, lesson: Lesson, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safecl.classifier.modelfile.state.REPLAYED", 0)
    model = new_model(keep=1)
    for number, classes in enumerate(("abcd", "ef", "g")):
        model.learn(*lesson(classes, seed=number))
    assert "5 of its 5 pictures stay in the sums over all classes" in model.forget("e")
    assert (
        model.classes_.tolist() == list("abcdfg")
        and model.predict_proba(lesson("a")[0]).shape[1] == 6
    )
    with raises("name.unknown", what="class", given="e"):
        model.forget("e")


def test_a_forgotten_class_leaves_though_the_untuned_backbone_has_no_statistics(
    new_model: New, lesson: Lesson
) -> None:
    """Two classes are too few for pilots, so nobody has asked for it."""
    model = new_model(settings={"beyond": 0.5})
    model.learn(*lesson("ab"))
    model.learn(*lesson("cd"))
    assert "its 5 pictures have left the sums over all classes" in model.forget("c")


def test_a_step_that_was_not_kept_is_no_reason_to_delete_the_file(
    new_model: New, lesson: Lesson
) -> None:
    model = new_model(keep=0)
    model.learn(*lesson("abc"))
    model.join("a", "b")
    with raises("rollback.not-kept"):
        model.rollback()


def test_a_head_without_projection_is_saved_and_goes_on(
    new_model: New, lesson: Lesson, tmp_path: Path
) -> None:
    model = new_model("ranpac", settings={"method.ridge": {"project": False}})
    model.learn(*lesson("ab"))
    model.learn(*lesson("c"))
    model.save(tmp_path / "m.safecl")
    again = ContinualClassifier.load(tmp_path / "m.safecl", device="cpu")
    images = lesson("abc", seed=5)[0]
    expected = again.predict_proba(images)
    again.learn(*lesson("d"))
    again.rollback()
    assert np.array_equal(again.predict_proba(images), expected)
    again.forget("a")
    assert again.classes_.tolist() == ["b", "c"]


def test_a_model_that_was_never_saved_merges_with_one_from_a_file(
    new_model: New, lesson: Lesson, tmp_path: Path
) -> None:
    model = new_model("simplecil")
    model.learn(*lesson("ab"))
    model.save(tmp_path / "m.safecl")
    other = ContinualClassifier.load(tmp_path / "m.safecl", device="cpu")
    other.learn(*lesson("c"))
    model.learn(*lesson("d"))
    assert sorted(model.merged(other).classes_) == list("abcd")


def test_models_that_renamed_or_forgot_a_common_class_are_not_merged(
    new_model: New, lesson: Lesson
) -> None:
    base = new_model("simplecil")
    base.learn(*lesson("abc"))
    one, other = (ContinualClassifier.of(base._fitted, device="cpu") for _ in range(2))
    one.learn(*lesson("d"))
    other.learn(*lesson("e"))
    one.rename("a", "z")
    with raises("merge.classes-differ", classes="a, z"):
        one.merged(other)
    other.rename("a", "z")
    assert sorted(one.merged(other).classes_) == list("bcdez")


@pytest.mark.parametrize("name", ["siprompts", "ease", "ssiat", "lae", "l2p"])
def test_a_method_forgets_a_class_or_says_that_it_cannot(
    name: str, new_model: New, lesson: Lesson
) -> None:
    model = new_model(name)
    model.learn(*lesson("ab"))
    model.learn(*lesson("c"))
    images = lesson("abc", seed=5)[0]
    assert model.predict_proba(images).shape[1] == 3
    if name == "siprompts":
        with raises("forget.session-head"):
            model.forget("a")
    else:
        model.forget("a")
        assert model.predict_proba(images).shape == (
            len(images),
            2,
        ) and model.classes_.tolist() == ["b", "c"]


@pytest.mark.parametrize("name", ["simplecil", "aper", "ranpac", "finetune"])
def test_other_methods_forget_and_merge_where_they_can(
    name: str, new_model: New, lesson: Lesson
) -> None:
    base = new_model(name)
    base.learn(*lesson("ab"))
    one, other = (ContinualClassifier.of(base._fitted, device="cpu") for _ in range(2))
    one.learn(*lesson("c"))
    other.learn(*lesson("da", seed=1))
    if name == "finetune":
        with raises("merge.no-network"):
            merge(one._fitted, other._fitted, one._backbone())
    else:
        both = ContinualClassifier.of(
            merge(one._fitted, other._fitted, one._backbone()), device="cpu"
        )
        one.learn(*lesson("da", seed=1))
        images = lesson("abcd", seed=5)[0]
        assert both._fitted.classes == ["a", "b", "c", "d"]
        found, wanted = (
            torch.cat([*model._snapshot().logits(_pictures(images))]) for model in (both, one)
        )
        assert torch.allclose(found, wanted, atol=1e-4)
    one.forget("c")
    assert "c" not in one.classes_.tolist() and len(one.predict(lesson("ab")[0])) == 10


def added_up(model: ContinualClassifier) -> dict[str, torch.Tensor]:
    """What a SAFE model has of sums over pictures beside the Gram matrix, rows in the order of
    ``classes_``.
    """
    tensors = model._fitted.state.tensors
    places = [model._fitted.classes.index(label) for label in model.classes_]
    rows = ["w_slow.counts", "w_slow.sums"]
    every = ["ridge_slow.errors"]
    untuned = len(tensors["following.untuned.counts"]) > 0
    every += ["ridge_untuned.errors"] if untuned else []
    for own in ("kept", "untuned") if untuned else ("kept",):
        rows += [f"following.{own}.counts", f"following.{own}.means"]
        every.append(f"following.{own}.scatter")
    return {name: tensors[name][places] for name in rows} | {name: tensors[name] for name in every}


HALVES = [("statistics", 3, False), ("statistics", 3, True), ("features", 0, True)]


@pytest.mark.parametrize(
    ("memory", "keep", "untuned"),
    [("features", 0, False), *(pytest.param(*each, marks=pytest.mark.slow) for each in HALVES)],
    indirect=["untuned"],
)
def test_merging_two_halves_equals_learning_both_in_one_go_for_who_answers_beside_the_fast_learner(
    memory: str,
    keep: int,
    untuned: bool,
    new_model: New,
    lesson: Lesson,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also beyond the sessions that can be rolled back, where all features are kept."""
    monkeypatch.setattr("safecl.classifier.modelfile.state.REPLAYED", 0)
    base = new_model(memory=memory, keep=keep, settings={"beyond": 0.5})
    base.learn(*lesson("abcd"))
    base.save(tmp_path / "base.safecl")
    halves = {"one": [("ef", 1)], "other": [("ha", 3), ("ie", 4)]}
    models = {}
    for name, sessions in halves.items():
        model = ContinualClassifier.load(tmp_path / "base.safecl", device="cpu")
        for classes, seed in sessions:
            model.learn(*lesson(classes, seed=seed))
        models[name] = reopened(model, tmp_path / f"{name}.safecl")
    whole = ContinualClassifier.load(tmp_path / "base.safecl", device="cpu")
    for classes, seed in [*halves["other"], *halves["one"]]:
        whole.learn(*lesson(classes, seed=seed))
    images = lesson("abcdefhi", seed=9)[0]
    a, b = (models[name]._fitted for name in halves)
    for pair in ((a, b), (b, a)):
        both = ContinualClassifier.of(merge(*pair, whole._backbone()), device="cpu")
        assert same(slow(both, images), slow(whole, images))
        wanted = added_up(whole)
        for name, found in added_up(both).items():
            assert wanted[name].any() and torch.allclose(found, wanted[name], atol=1e-4), name
        assert not both._fitted.state.undo and both._fitted.method(whole._backbone()).sessions == 4
        again = reopened(both, tmp_path / f"{both._fitted.classes[4]}.safecl")
        assert (again.predict_proba(images) == both.predict_proba(images)).all()
    again.learn(*lesson("j", seed=6))  # and it keeps learning
    assert len(again.classes_) == 9


@pytest.mark.parametrize("keep", [3, 0])
def test_merging_adds_up_statistics_that_both_learners_share(
    keep: int, new_model: New, lesson: Lesson
) -> None:
    base = new_model(memory="features", keep=keep, settings={"method.answer.statistics": "shared"})
    base.learn(*lesson("abcd"))
    one, other = (ContinualClassifier.of(base._fitted, device="cpu") for _ in range(2))
    one.learn(*lesson("ef", seed=1))
    other.learn(*lesson("gha", seed=2))
    both = one.merged(other)
    past, first, second, found = (
        model._fitted.method(base._backbone(), learning=True).get_submodule("ridge_fast").statistics
        for model in (base, one, other, both)
    )
    zeros = torch.zeros(len(past.sums), 2)
    more = torch.cat([second.sums[:, :4] - past.sums, zeros, second.sums[:, 4:]], dim=1)
    assert torch.allclose(found.sums, torch.cat([first.sums, zeros], dim=1) + more, atol=1e-3)
    assert torch.allclose(found.gram, first.gram + second.gram - past.gram, atol=1e-2)
    assert (
        found.count == 90
        and "its 10 pictures have left the sums over all classes" in both.forget("a")
    )
    found = (
        both._fitted.method(base._backbone(), learning=True).get_submodule("ridge_fast").statistics
    )
    assert found.count == 70


@pytest.mark.parametrize("name", ["safe", "simplecil"])
def test_a_session_that_was_merged_before_is_not_added_again(
    name: str, new_model: New, lesson: Lesson
) -> None:
    """Also where the two had no common beginning, as a method that tunes nothing allows."""
    base = new_model(name)
    if name == "safe":
        base.learn(*lesson("abcd"))
    one, other = (
        ContinualClassifier.of(base._fitted, device="cpu") if name == "safe" else new_model(name)
        for _ in "ab"
    )
    one.learn(*lesson("ef", seed=1))
    other.learn(*lesson("gh", seed=2))
    both = one.merged(other)
    other.learn(*lesson("ig", seed=3))
    again = both.merged(other)._fitted
    each = {"g": 10} | dict.fromkeys("abcdefhi" if name == "safe" else "efhi", 5)
    assert counts(again.header) == each and sorted(again.classes) == sorted(each)
    sums = [
        rows for key, rows in again.state.tensors.items() if key.endswith(".counts") and len(rows)
    ]
    assert sums and all(
        dict(zip(again.classes, rows.tolist(), strict=True)) == each for rows in sums
    )
    for rows in (again.state.kept["targets"], again.state.seen["classes"]):
        assert {again.classes[i]: n for i, n in enumerate(rows.bincount().tolist())} == each
    if name == "safe":
        assert again.state.tensors["ridge_slow.statistics.count"] == 50
    ids = [entry["id"] for entry in again.header["history"]]
    assert len(ids) == len(set(ids))
    both.forget("g")
    with raises("merge.classes-differ", classes="g"):
        both.merged(other)


def test_models_whose_common_beginning_is_unknown_are_refused(
    new_model: New, lesson: Lesson
) -> None:
    base = new_model("ranpac", keep=0)
    base.learn(*lesson("ab"))
    one, other = (ContinualClassifier.of(base._fitted, device="cpu") for _ in range(2))
    one.learn(*lesson("c"))
    other.learn(*lesson("d"))
    with raises("merge.neither-holds"):
        one.merged(other)


@pytest.mark.parametrize("memory", ["statistics", "features"])
def test_what_is_forgotten_or_merged_keeps_no_record_that_nothing_needs(
    memory: str, new_model: New, lesson: Lesson, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safecl.classifier.modelfile.state.REPLAYED", 0)
    base = new_model("ranpac", memory=memory)
    base.learn(*lesson("ab"))
    one, other = (ContinualClassifier.of(base._fitted, device="cpu") for _ in range(2))
    one.learn(*lesson("c"))
    other.learn(*lesson("d"))
    both = one.merged(other)
    one.forget("a")
    for model, kept in ((both, 3), (one, 2)):
        state = model._fitted.state
        assert (
            not state.chain
            and not state.undo
            and len(state.records) == (kept if memory == "features" else 0)
        )


@pytest.mark.parametrize("replayed", [0, 512])
def test_a_session_is_taken_back_to_the_bit_with_all_that_learning_needs(
    replayed: int, new_model: New, lesson: Lesson, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For every session of the last ``keep``, whatever their sizes, and from file to file."""
    monkeypatch.setattr("safecl.classifier.modelfile.state.REPLAYED", replayed)
    model = new_model(keep=2, settings={"method.ridge": {"size": 30}})
    states = []
    for number, (classes, each) in enumerate([("ab", 5), ("c", 2), ("ad", 40), ("e", 3)]):
        model.learn(*lesson(classes, each, seed=number))
        states.append(model._fitted.method(model._backbone(), learning=True).state_dict())
    for wanted in (states[2], states[1]):
        model = reopened(model, tmp_path / "m.safecl")
        model.rollback()
        found = model._fitted.method(model._backbone(), learning=True).state_dict()
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            assert torch.equal(found[name], value), name
    with raises("rollback.not-kept"):
        model.rollback()


def test_models_that_do_not_belong_together_are_refused(new_model: New, lesson: Lesson) -> None:
    one, other, third = (new_model("ranpac", seed=seed) for seed in (0, 0, 1))
    for model in (one, other, third):
        model.learn(*lesson("ab"))
    backbone = one._backbone()
    with raises("merge.second-nothing"):
        merge(one._fitted, one._fitted, backbone)
    with raises("merge.other-first-session"):
        other.learn(*lesson("c"))
        merge(one._fitted, other._fitted, backbone)
    with raises("merge.differ", what=re.compile("^seed")):
        merge(one._fitted, third._fitted, backbone)


@pytest.mark.parametrize(("taught", "known"), [([0, 1], [0, 1]), (["0", "1"], ["0", "1"])])
def test_numbers_and_folders_called_by_numbers_are_the_same_classes(
    taught: list[Any],
    known: list[Any],
    new_model: New,
    lesson: Lesson,
    write_folder: Any,
    tmp_path: Path,
) -> None:
    """Whichever came first, at every door that takes labels."""
    images, labels = lesson(["0", "1"], 4)
    folder = write_folder(tmp_path / "of", ["0", "1"], 4)
    numbers = [int(label) for label in labels]
    model = new_model("simplecil")
    model.learn(images, [taught[number] for number in numbers])
    assert model.score(folder) == model.score(images, labels) == model.score(images, numbers) > 0.9
    said, judged = evaluate(model._snapshot(), labelled(folder)[0])
    assert (said["pictures"], said["unknown_pictures"], len(judged)) == (8, 0, 8)
    # its files are other bytes than the arrays
    assert [model.learn(folder).pictures for _ in range(2)] == [
        8,
        0,
    ]
    assert model.classes_.tolist() == known and model.history_[-1]["classes"] == [
        [label, 4] for label in known
    ]
    model.learn(lesson(["2"])[0], [2] * 5)
    model.learn(write_folder(tmp_path / "more", ["3"]))
    kind = type(known[0])
    assert model.classes_.tolist() == [kind(label) for label in range(4)]
    model.correct(folder / "0" / "000.png", 1)
    assert model.history_[-1]["was"][0][1] == known[0]
    model.correct(folder / "0" / "000.png", "0")
    model.split(0, folder / "0" / "001.png", into="9")
    model.rename("9", 4)
    assert model.classes_.tolist() == [kind(label) for label in range(5)]
    assert np.isfinite(model.heat_map(folder / "0" / "002.png", "3")).all()


def test_models_that_learned_one_class_as_a_number_and_as_a_word_are_merged_into_one(
    new_model: New, lesson: Lesson
) -> None:
    base = new_model("simplecil")
    base.learn(*lesson("ab"))
    one, other = (ContinualClassifier.of(base._fitted, device="cpu") for _ in range(2))
    one.learn(lesson("7")[0], [7] * 5)
    other.learn(lesson("7", seed=1)[0], ["7"] * 5)
    assert one.merged(other).classes_.tolist() == [7, "a", "b"]
    assert other.merged(one).classes_.tolist() == ["7", "a", "b"]

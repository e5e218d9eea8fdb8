"""A model answers before it is tuned, and is then tuned where that pays."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from safecl.classifier.classifier import ContinualClassifier, learn_file
from safecl.classifier.modelfile.store import ModelFile
from safecl.engine.progress import Progress
from safecl.errors import SafeclError, Stopped

QUIET = Progress()


def same(one: Any, other: Any, pictures: Any) -> bool:
    return bool(np.array_equal(one.predict_proba(pictures), other.predict_proba(pictures)))


def test_what_answers_first_is_the_untuned_expert_and_what_follows_is_what_was_always_learned(
    new_model: Callable[..., Any], lesson: Callable[..., Any]
) -> None:
    images, labels = lesson("abcd", 6)
    first: list[Any] = []
    model = new_model()
    model.learn(
        images,
        labels,
        tune="always",
        ready=lambda lesson: first.append((lesson, ContinualClassifier.of(model._fitted))),
    )
    ((told, answers),) = first
    plain = new_model("ranpac", pet="none")
    plain.learn(images, labels)
    assert told.epochs == 0 and told.accuracy == plain.history_[-1]["accuracy"]
    assert same(answers, plain, images) and answers.get_params()["method"] == "safe"
    assert answers._fitted.header["calibration"] == plain._fitted.header["calibration"]
    at_once = new_model()
    at_once.learn(images, labels, tune="always")
    assert same(model, at_once, images) and not same(model, answers, images)
    assert model._fitted.tuned and not answers._fitted.tuned


def test_a_later_session_answers_first_with_networks_as_they_are(
    new_model: Callable[..., Any], lesson: Callable[..., Any]
) -> None:
    model = new_model()
    model.learn(*lesson("abcd", 6))
    before = {k: v.clone() for k, v in model._fitted.state.tensors.items() if k.startswith("fast.")}
    seen: list[Any] = []
    model.learn(*lesson("ef", 6), tune="always", ready=lambda lesson: seen.append(model._fitted))
    assert list(seen[0].classes) == list("abcdef")
    assert all(bool((seen[0].state.tensors[k] == v).all()) for k, v in before.items())
    other = new_model()
    other.learn(*lesson("abcd", 6))
    other.learn(*lesson("ef", 6), tune="always")
    assert same(model, other, lesson("abcdef", 2, seed=1)[0])
    model.rollback()
    assert model.classes_.tolist() == list("abcd")


def test_an_untuned_model_stays_so_and_says_that_tuning_comes_too_late(
    new_model: Callable[..., Any], lesson: Callable[..., Any], tmp_path: Path
) -> None:
    model = new_model()
    told = model.learn(*lesson("ab", 6), tune="never")
    assert told.epochs == 0
    model.save(tmp_path / "m.safecl")
    again = ContinualClassifier.load(tmp_path / "m.safecl", device="cpu")
    with pytest.raises(SafeclError) as error:
        again.learn(*lesson("cd", 6), tune="always")
    assert error.value.code == "model.tune.begun-without"
    again.learn(*lesson("cd", 6))
    plain = new_model("ranpac", pet="none")
    plain.learn(*lesson("ab", 6))
    plain.learn(*lesson("cd", 6))
    pictures = lesson("abcd", 2, seed=1)[0]
    assert same(again, plain, pictures)
    again.rollback()
    assert same(again, model, pictures)


@pytest.mark.parametrize(
    ("method", "options", "tune", "code"),
    [
        ("simplecil", {}, "always", "model.tune.nothing"),
        ("ranpac", {"pet": "none", "epochs": None}, "always", "model.tune.nothing"),
        ("l2p", {}, "never", "model.tune.needed"),
    ],
)
def test_a_wish_that_a_method_cannot_fulfil_is_refused(
    method: str,
    options: dict[str, Any],
    tune: Any,
    code: str,
    new_model: Callable[..., Any],
    lesson: Callable[..., Any],
) -> None:
    with pytest.raises(SafeclError) as error:
        new_model(method, **options).learn(*lesson("ab"), tune=tune)
    assert error.value.code == code


def test_a_method_without_training_needs_one_step(
    new_model: Callable[..., Any], lesson: Callable[..., Any]
) -> None:
    calls: list[Any] = []
    for method in ("simplecil", "ranpac"):
        model = new_model(method, **({"pet": "none"} if method == "ranpac" else {}))
        model.learn(*lesson("ab"), ready=calls.append)
        model.learn(*lesson("c"), ready=calls.append)
    assert calls == []


@pytest.mark.parametrize("sessions", [["abcd"], ["abcd", "ef"]])
def test_a_kill_between_answer_and_tuning_leaves_a_model_and_the_same_command_goes_on(
    sessions: list[str],
    new_model: Callable[..., Any],
    write_folder: Callable[..., Path],
    tmp_path: Path,
) -> None:
    folders = [write_folder(tmp_path / f"in{i}", c, 6) for i, c in enumerate(sessions)]
    given = new_model().get_params()
    given.pop("device")

    class Killed(Exception):
        pass

    def learn(folder: Path, file: Path, ready: Any = lambda lesson, model: None) -> Any:
        made = {} if file.exists() else given
        shared: Any = {"name": None, "again": False, "device": "cpu", "tune": "always"}
        return learn_file(str(folder), file, QUIET, ready=ready, **shared, **made)

    whole = tmp_path / "whole.safecl"
    killed = tmp_path / "killed.safecl"
    for folder in folders[:-1]:
        learn(folder, whole)
    if whole.exists():
        shutil.copy(whole, killed)
    learn(folders[-1], whole)

    def kill(lesson: Any, model: Any) -> None:
        raise Killed

    with pytest.raises(Killed):
        learn(folders[-1], killed, kill)
    model = ContinualClassifier.load(killed, device="cpu")
    assert model.classes_.tolist() == sorted("".join(sessions))
    assert model._fitted.tuned is (len(sessions) > 1) and model.history_[-1]["epochs"] == 0
    answer: list[Any] = []
    learn(folders[-1], killed, lambda lesson, model: answer.append(lesson))
    assert not answer  # it was given before
    resumed = ContinualClassifier.load(killed, device="cpu")
    expected = ContinualClassifier.load(whole, device="cpu")
    pictures = [str(path) for path in sorted(folders[-1].rglob("*.png"))]
    assert same(resumed, expected, pictures)
    assert len(resumed.history_) == len(sessions) and resumed.history_[-1]["epochs"] == 1
    assert not (tmp_path / ".killed.safecl.work").exists()


def test_another_lesson_after_a_stop_leaves_the_answer_as_the_model(
    new_model: Callable[..., Any], write_folder: Callable[..., Path], tmp_path: Path
) -> None:
    given = new_model().get_params()
    given.pop("device")
    file = tmp_path / "m.safecl"
    shared: Any = {"name": None, "again": False, "device": "cpu"}

    def stop(lesson: Any, model: Any) -> None:
        raise Stopped

    first = str(write_folder(tmp_path / "one", "ab", 6))
    with pytest.raises(Stopped):
        learn_file(first, file, QUIET, ready=stop, **shared, **given)
    assert json.loads((tmp_path / ".m.safecl.work" / "job.json").read_text())["answered"]
    lesson, model = learn_file(str(write_folder(tmp_path / "two", "cd", 6)), file, QUIET, **shared)
    assert lesson.epochs == 0 and model.classes_.tolist() == list("abcd")
    assert [entry["name"] for entry in ModelFile(file).header["history"]] == ["one", "two"]


@pytest.mark.parametrize("memory", ["statistics", "features"])
def test_an_untuned_model_is_corrected_forgets_merges_and_is_kept_like_any(
    memory: str, new_model: Callable[..., Any], lesson: Callable[..., Any], tmp_path: Path
) -> None:
    model = new_model(memory=memory, thumbnails=True)
    images, labels = lesson("abc", 6)
    model.learn(images, labels, tune="never")
    model.save(tmp_path / "m.safecl")
    one, other = (ContinualClassifier.load(tmp_path / "m.safecl", device="cpu") for _ in range(2))
    one.learn(*lesson("d", 6))
    other.learn(*lesson("e", 6))
    merged = one.merged(other)
    at_once = new_model(memory=memory)
    at_once.learn(images, labels, tune="never")
    at_once.learn(*lesson("d", 6))
    at_once.learn(*lesson("e", 6))
    pictures = lesson("abcde", 2, seed=1)[0]
    assert np.allclose(
        merged.decision_function(pictures), at_once.decision_function(pictures), atol=1e-4
    )
    assert len(merged._fitted.state.thumbnails) == 10
    merged.correct(images[:1], "b")
    merged.forget("c")
    assert merged.classes_.tolist() == list("abde") and not merged._fitted.tuned
    tuned = new_model(memory=memory, thumbnails=True)
    tuned.learn(images, labels, tune="always")
    with pytest.raises(SafeclError):
        one.merged(tuned)


def test_an_untuned_model_is_corrected_as_if_taught_so_and_goes_back_to_the_bit(
    new_model: Callable[..., Any], lesson: Callable[..., Any]
) -> None:
    images, labels = lesson("abc", 6)
    wrong = ["b", *labels[1:]]
    pictures = lesson("abc", 2, seed=1)[0]
    model, right = new_model(), new_model()
    model.learn(images, wrong, tune="never")
    right.learn(images, labels, tune="never")
    before = model.decision_function(pictures)
    model.correct(images[:1], labels[0])
    found = model.decision_function(pictures)
    assert np.array_equal(found, right.decision_function(pictures))
    assert not np.allclose(found, before, atol=1e-3) and not model._fitted.tuned
    model.rollback()
    assert np.array_equal(model.decision_function(pictures), before)


def test_a_tuned_session_goes_back_to_before_it_and_not_to_its_first_answer(
    new_model: Callable[..., Any], lesson: Callable[..., Any]
) -> None:
    model = new_model()
    model.learn(*lesson("abc", 6), tune="always")
    pictures = lesson("abcd", 2, seed=1)[0]
    before = model.decision_function(pictures)
    first: list[np.ndarray] = []
    model.learn(
        *lesson("de", 6),
        tune="always",
        ready=lambda _: first.append(model.decision_function(pictures)),
    )
    assert not np.array_equal(model.decision_function(pictures), first[0])
    model.rollback()
    assert np.array_equal(model.decision_function(pictures), before)

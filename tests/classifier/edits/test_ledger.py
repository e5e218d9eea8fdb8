"""Whatever is done to a model, its sums are those of a model that learned the labels of today, in
the same sessions.
"""

import string
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.modelfile.history import counts
from safecl.errors import SafeclError

New = Callable[..., ContinualClassifier]
Lesson = Callable[..., tuple[np.ndarray, list[Any]]]
Sessions = list[dict[int, str]]
"""By session, the pictures that it has left, and their classes of today."""

# A β of the size of a feature's norm keeps small what rounding does to weights: the last digits of
# features differ in batches of other pictures.
PLAIN = {"layers": 1, "patches": False, "mirror": False}
RIDGE = {"method.ridge": {"size": 40, "betas": (0.3, 1.0, 3.0), **PLAIN}}
KINDS: dict[str, dict[str, Any]] = {"ranpac": RIDGE, "safe": {"beyond": 0, **RIDGE}}
POOL = 60  # pictures of a few patterns, which are learned as whatever is drawn

number = st.integers(0, 9)
picks = st.lists(st.integers(0, 99), min_size=1, max_size=4)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("learn"), picks, number),
        st.tuples(st.just("correct"), picks, number),
        st.tuples(st.just("remove"), picks, number),
        st.tuples(st.just("add"), picks, number),
        st.tuples(st.just("rename"), picks, number),
        st.tuples(st.just("forget"), picks, number),
        st.tuples(st.just("merge"), picks, number),
        st.tuples(st.just("roll back"), picks, number),
    ),
    min_size=3,
    max_size=6,
)


@dataclass
class Taught:
    """A model, what it should have learned, and what it should have learned before each step that
    can be taken back.
    """

    model: ContinualClassifier
    images: np.ndarray
    sessions: Sessions = field(default_factory=list)
    past: list[Sessions] = field(default_factory=list)
    names: int = 0  # that were given so far

    @property
    def learned(self) -> dict[int, str]:
        return {i: label for session in self.sessions for i, label in session.items()}

    @property
    def classes(self) -> list[str]:
        return sorted(set(self.learned.values()))

    def fresh(self, picks: list[int], each: int = 1) -> list[int]:
        """Pictures that were not learned."""
        free = [i for i in range(POOL) if i not in self.learned]
        return sorted({free[(each * n + k) % len(free)] for n in picks for k in range(each)})

    def some(self, picks: list[int]) -> list[int]:
        """Pictures that were learned."""
        known = sorted(self.learned)
        return sorted({known[n % len(known)] for n in picks})

    def label(self, n: int) -> str:
        """A known class, or a new one."""
        if n < len(self.classes):
            return self.classes[n]
        self.names += 1
        return f"{string.ascii_lowercase[n]}{self.names}"

    def learn(self, picks: list[int], n: int) -> None:
        these = self.fresh(picks, each=3)
        labels = [self.label(n), self.label(n + 1)]
        session = {i: labels[k % 2] for k, i in enumerate(these)}
        self.model.learn(self.images[these], list(session.values()))
        self.go(*self.sessions, session)

    def add(self, picks: list[int], n: int) -> None:
        these, label = self.fresh(picks), self.label(n)
        self.model.correct(self.images[these], label)
        self.go(*self.sessions, dict.fromkeys(these, label))

    def correct(self, picks: list[int], n: int) -> None:
        label = self.label(n)
        these = [i for i in self.some(picks) if self.learned[i] != label]
        left = set(self.classes) - {self.learned[i] for i in these}
        if these and left:
            self.model.correct(self.images[these], label)
            self.go(*({i: label if i in these else c for i, c in s.items()} for s in self.sessions))

    def remove(self, picks: list[int], n: int) -> None:
        these = self.some(picks)
        if len(these) < len(self.learned):
            self.model.correct(self.images[these], remove=True)
            self.go(*({i: c for i, c in s.items() if i not in these} for s in self.sessions))

    def rename(self, picks: list[int], n: int) -> None:
        old, new = self.classes[n % len(self.classes)], self.label(9)
        self.model.rename(old, new)
        for sessions in (self.sessions, *self.past):
            for session in sessions:
                session |= {i: new for i, label in session.items() if label == old}

    def forget(self, picks: list[int], n: int) -> None:
        if len(self.classes) > 1:
            gone = self.classes[n % len(self.classes)]
            self.model.forget(gone)
            self.sessions = [{i: c for i, c in s.items() if c != gone} for s in self.sessions]
            self.past = []

    def merge(self, picks: list[int], n: int) -> None:
        """With one that has learned a session of its own, which is in part the other's."""
        twin = ContinualClassifier.of(self.model._fitted, device="cpu")
        these, label = self.fresh(picks, each=3), self.label(n)
        mine, theirs = these[: len(these) // 2 + 1], these[len(these) // 2 :]
        self.model.learn(self.images[mine], [label] * len(mine))
        twin.learn(self.images[theirs], [label] * len(theirs))
        self.model = self.model.merged(twin)
        sessions = dict.fromkeys(mine, label), dict.fromkeys(set(theirs) - {*mine}, label)
        self.sessions = [*self.sessions, *sessions]
        self.past = []

    def roll_back(self, picks: list[int], n: int) -> None:
        if self.past:
            self.model.rollback()
            self.sessions = self.past.pop()
        else:
            with pytest.raises(SafeclError) as caught:
                self.model.rollback()
            assert caught.value.code in ("rollback.one-session", "rollback.not-kept")

    def go(self, *sessions: dict[int, str]) -> None:
        self.past += [self.sessions] if self.sessions else []
        self.sessions = [dict(session) for session in sessions]


def sums(model: ContinualClassifier) -> dict[str, torch.Tensor]:
    """What a model answers by, with columns and rows of classes in the order of their names."""
    fitted = model._fitted
    order = torch.tensor([fitted.classes.index(label) for label in model.classes_])
    state = fitted.method(model._backbone(), learning=True).state_dict()
    found = {}
    for name, value in state.items():
        if name.startswith("ridge") and name.endswith(("weight", "sums")):
            found[name] = value[:, order] if value.numel() else value
        elif name.startswith("ridge") and name.endswith(("gram", "count", "errors")):
            found[name] = value
        elif name.startswith("following.kept") and name.endswith(("counts", "means")):
            found[name] = value[order]
        elif name == "following.kept.scatter":
            found[name] = value
    return found


def check(taught: Taught, new: Callable[[], ContinualClassifier]) -> None:
    wanted = new()
    for session in taught.sessions:
        if session:
            these = sorted(session)
            wanted.learn(taught.images[these], [session[i] for i in these], again=True)
    found, should = sums(taught.model), sums(wanted)
    assert counts(taught.model._fitted.header) == counts(wanted._fitted.header)
    assert found.keys() == should.keys() and any(name.endswith("weight") for name in found)
    fast = "ridge_fast.weight"  # the fast learner has none of its own before it is tuned
    if fast in found and not (found[fast].numel() and should[fast].numel()):
        should = {name: value for name, value in should.items() if "fast" not in name}
    for name, value in should.items():
        assert found[name].shape == value.shape, name
        near = 1e-5 * float(value.abs().max()) if value.numel() else 0.0
        assert torch.allclose(found[name], value, rtol=0, atol=near), name


@pytest.mark.parametrize(
    ("kind", "memory", "replayed", "examples"),
    [
        ("ranpac", "features", 512, 12),
        ("ranpac", "features", 0, 12),
        ("ranpac", "statistics", 512, 6),
        ("safe", "features", 0, 8),
    ],
)
def test_sums_are_those_of_a_model_that_learned_the_labels_of_today(
    kind: str,
    memory: str,
    replayed: int,
    examples: int,
    new_model: New,
    lesson: Lesson,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where sessions are folded, with ``replayed`` pictures at most that are not."""
    monkeypatch.setattr("safecl.classifier.modelfile.state.REPLAYED", replayed)
    images = lesson("abcdef", POOL // 6)[0]
    loaded = new_model(kind, pet="none", memory=memory, settings=KINDS[kind])
    loaded.learn(images[:2], ["a", "b"])

    def new() -> ContinualClassifier:
        model = new_model(kind, pet="none", memory=memory, keep=9, settings=KINDS[kind])
        model._loaded = loaded._loaded
        return model

    # What fails is shown as it was drawn: to shrink it takes minutes.
    @settings(max_examples=examples, phases=[Phase.generate])
    @given(steps)
    def hold(drawn: list[tuple[str, list[int], int]]) -> None:
        taught = Taught(new(), images)
        taught.learn([0, 3, 9], 0)
        for name, picks, n in drawn:
            getattr(taught, name.replace(" ", "_"))(picks, n)
        check(taught, new)

    hold()

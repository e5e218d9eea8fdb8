"""What a model says of pictures: logits batch by batch, an answer for a person, and how good the answers are."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from safecl.backbone.load import load_backbone
from safecl.classifier.calibrate import expected_error, probabilities, reliability, unknown_score
from safecl.classifier.data import unlabelled
from safecl.classifier.model import Model
from safecl.classifier.store import ModelFile
from safecl.engine.device import choose_device, choose_precision
from safecl.engine.device_loader import moved
from safecl.errors import SafeclError
from safecl.methods.method import Method
from safecl.runtime.answer import Answer, Answering, is_calibrated, make_answers
from safecl.streams.pictures.images import Label, Pictures, Transform
from safecl.streams.pictures.load import batches

LIKENESS = " likeness"  # beside the names of outputs, none of which begins so
NO_LOGIT = -1e9  # of the others, where there is one class
MAX_CONFUSIONS = 10  # pairs of classes that are listed
BATCH = {"cpu": 64, "cuda": 256}  # pictures that go through the network at a time


@dataclass(frozen=True)
class Snapshot(Answering):
    """A model and its method, neither of which changes: a call asks one of them, whatever is learned meanwhile."""

    model: Model
    method: Method
    careful: bool = False  # the mean answer to a picture and its mirror image

    @classmethod
    def open(cls, path: str | Path | ModelFile, device: str = "auto") -> "Snapshot":
        """The model in a file, for answers alone: unlike ``ContinualClassifier`` it needs no scikit-learn."""
        model, place = Model.open(path), choose_device(device)
        method = model.method(load_backbone(model.settings.backbone).to(place, choose_precision("auto", place)))
        return cls(model, method.eval())

    def carefully(self, careful: bool) -> "Snapshot":
        """One that looks at mirror images as well, which its heads must have learned."""
        if careful and not any(getattr(self.method, head).reading.mirror for head in self.method.heads.values()):
            raise SafeclError(
                "A careful answer is the mean of those to a picture and its mirror image, and this model has learned "
                "no mirror images; ask it as it is, or teach a new one with --set method.ridge.mirror=true."
            )
        return replace(self, careful=careful)

    @property
    def file(self) -> ModelFile:
        """What it was opened from."""
        assert self.model.file is not None
        return self.model.file

    @property
    def known(self) -> list[Label]:  # type: ignore[override]
        return self.model.classes

    @property
    def outputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.method.outputs

    @property
    def calibration(self) -> dict[str, Any] | None:  # type: ignore[override]
        found: dict[str, Any] | None = self.model.header["calibration"]
        return found

    def scored(self, pictures: Pictures) -> Iterator[tuple[dict[str, Tensor], Tensor, Tensor]]:
        """(what ``answered`` gives, logits of the answer, how known pictures look) of a batch at a time, on the CPU."""
        method, main = self.method, self.method.outputs[-1]

        def ask(images: Tensor) -> dict[str, Tensor]:
            found = answered(method, method.embed(images))
            if not self.careful:
                return found
            mirrored = answered(method, method.embed(images.flip(3)))
            return {name: (rows + mirrored[name]) / 2 for name, rows in found.items()}

        for found in asked(ask, method, self.model.transform, pictures):
            yield found, found[main], scores_of(method, found, self.calibration)

    def features(self, pictures: Pictures) -> Iterator[Tensor]:
        """Features (n, d′) of a batch at a time, on the CPU: of every network that answers, side by side."""
        for found in asked(self.method.embed, self.method, self.model.transform, pictures):
            yield torch.cat(list(found.values()), dim=1)

    def answers(self, pictures: Any, *, unknown: float | None = 0.05, detail: bool = True) -> Iterator[Answer]:
        """The answers one by one; see ``answers_of``."""
        parts, limits = self.scored(unlabelled(pictures)), self.limits(unknown)
        return chain.from_iterable(
            answers_of(self.method, found, self.calibration, limits, detail) for found, *_ in parts
        )


@torch.no_grad()
def asked(
    ask: Callable[[Tensor], dict[str, Tensor]], method: Method, transform: Transform, pictures: Pictures
) -> Iterator[dict[str, Tensor]]:
    """What ``ask`` gives for a batch of pictures in [0, 1] at a time, on the CPU; it is a function of ``method``."""
    device = method.backbone.device
    waiting: dict[str, Tensor] = {}  # answers that the device is working on while the next batch is made ready

    def arrived() -> dict[str, Tensor]:
        return {name: rows.float().cpu() for name, rows in waiting.items()}

    size, pin = BATCH.get(device.type, 64), device.type == "cuda"
    for batch in batches(pictures, range(len(pictures)), size, "plain", transform, pin=pin):
        answers = ask(moved(batch.pictures, device).float() / 255)
        if waiting:
            yield arrived()
        waiting = answers
    if waiting:
        yield arrived()


def answered(method: Method, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Logits (N, C) by output, and the likeness (N,) under ``LIKENESS`` where there is one."""
    likeness = method.likeness(features)
    return method.answer(features) | ({} if likeness is None else {LIKENESS: likeness})


def scores_of(method: Method, found: Mapping[str, Tensor], calibration: dict[str, Any] | None) -> Tensor:
    """How known pictures look, from what ``answered`` has given: (N,)."""
    return unknown_score(found[method.outputs[-1]], found.get(LIKENESS), calibration)


def answers_of(
    method: Method, logits: Mapping[str, Tensor], calibration: dict[str, Any] | None, limits: np.ndarray, detail: bool
) -> Iterator[Answer]:
    """The answers to a batch; ``logits``: what ``answered`` has given.

    ``limits`` (C,): by answer, as of ``thresholds``. ``detail``: with all opinions.
    """
    said = method.outputs if detail else method.outputs[-1:]
    p = {name: probabilities(logits[name], calibration).numpy() for name in said}
    weights = {name: rows.numpy() for name, rows in method.weights(logits).items()} if detail else None
    scores = scores_of(method, logits, calibration).double().numpy()
    return make_answers(method.classes, p, scores, limits, is_calibrated(calibration), weights)


class Judged(NamedTuple):
    """The answer to the picture at ``place``; ``margin``: the logit of its own class less the largest other one."""

    place: int
    label: Label
    answer: Answer
    margin: float

    @property
    def right(self) -> bool:
        return self.answer.label == self.label


def evaluate(now: Snapshot, pictures: Pictures, unknown: float = 0.05) -> tuple[dict[str, Any], list[Judged]]:
    """(numbers fit for JSON, the answers to pictures of known classes); others only show whether it says unknown."""
    known, limits = {label: c for c, label in enumerate(now.known)}, now.limits(unknown)
    said: list[tuple[Answer, float]] = []
    for found, main, _ in now.scored(pictures):
        labels = pictures.labels[len(said) : len(said) + len(main)]
        own = torch.tensor([known.get(label, 0) for label in labels])[:, None]
        margins = main.gather(1, own) - main.scatter(1, own, NO_LOGIT).amax(dim=1, keepdim=True)
        answers = answers_of(now.method, found, now.calibration, limits, detail=False)
        said += zip(answers, margins[:, 0].tolist(), strict=True)
    every = [Judged(i, label, *one) for i, (label, one) in enumerate(zip(pictures.labels, said, strict=True))]
    strangers = [one.answer.unknown for one in every if one.label not in known]
    given = [one for one in every if one.label in known]
    sure = torch.tensor([one.answer.probability for one in given if one.answer.probability is not None])
    correct = torch.tensor([one.right for one in given])[: len(sure)]  # all of them or none are calibrated
    by_class: dict[Any, list[bool]] = {}
    for one in given:
        by_class.setdefault(one.label, []).append(one.right)
    mixed = Counter((one.label, one.answer.label) for one in given if not one.right)
    return {
        "pictures": len(given),
        "accuracy": _mean([one.right for one in given]),
        "error": expected_error(sure, correct),
        "bins": reliability(sure, correct),
        "unknown": unknown,
        "false_alarms": _mean([one.answer.unknown for one in given]),
        "unknown_pictures": len(strangers),
        "found": _mean(strangers),
        "classes": [[label, _mean(hits), len(hits)] for label, hits in by_class.items()],
        "confused": [[true, said, count] for (true, said), count in mixed.most_common(MAX_CONFUSIONS)],
    }, given


def _mean(values: Sequence[bool | None]) -> float | None:
    told = [value for value in values if value is not None]
    return sum(told) / len(told) if told else None

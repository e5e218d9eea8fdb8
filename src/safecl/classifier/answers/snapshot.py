"""What a model says of pictures: logits batch by batch, an answer for a person, and how good the
answers are.
"""

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from safecl.backbone.load import load_backbone
from safecl.classifier.answers.calibrate import (
    expected_error,
    looked,
    probabilities,
    reliability,
    unknown_score,
)
from safecl.classifier.data import as_meant, unlabelled
from safecl.classifier.model import Model
from safecl.classifier.modelfile.store import ModelFile
from safecl.engine.device import choose_device, choose_precision
from safecl.engine.device_loader import moved
from safecl.engine.metrics import mean
from safecl.errors import SafeclError
from safecl.methods.method import Method
from safecl.methods.parts import heads_of
from safecl.runtime.answer import Answer, Answering, Limits, is_calibrated, make_answers
from safecl.runtime.drift import Drift
from safecl.streams.pictures.images import Label, Pictures
from safecl.streams.pictures.load import batches

LIKENESS = " likeness"  # beside the names of outputs, none of which begins so
LOOKED = " looks"  # likewise
NO_LOGIT = -1e9  # of the others, where there is one class
MAX_CONFUSIONS = 10  # pairs of classes that are listed
BATCH = {"cpu": 64, "cuda": 256}  # pictures that go through the network at a time


class Snapshot(Answering):
    """A model and its method, neither of which changes: a call asks one of them, whatever is
    learned meanwhile.

    ``careful``: the mean answer to a picture and its mirror image.
    """

    def __init__(self, model: Model, method: Method, careful: bool = False) -> None:
        self.model = model
        self.method = method.eval()
        self.careful = careful
        self.known = model.classes
        self.outputs = method.outputs
        self.calibration = model.header["calibration"]

    @classmethod
    def open(
        cls, path: str | Path | ModelFile, device: str = "auto", precision: str = "auto"
    ) -> "Snapshot":
        """The model in a file, for answers alone: unlike ``ContinualClassifier`` it needs no
        scikit-learn.
        """
        model = Model.open(path)
        place = choose_device(device)
        return cls(
            model,
            model.method(
                load_backbone(model.settings.backbone).to(place, choose_precision(precision, place))
            ),
        )

    def carefully(self, careful: bool) -> "Snapshot":
        """One that looks at mirror images as well, which its heads must have learned."""
        if careful and not any(
            getattr(self.method, head).reading.mirror for head in heads_of(self.method).values()
        ):
            raise SafeclError("answer.careful.no-mirror")
        twin = copy.copy(self)
        twin.careful = careful
        return twin

    @property
    def file(self) -> ModelFile:
        """What it was opened from."""
        assert self.model.file is not None
        return self.model.file

    @torch.no_grad()
    def asked(
        self, ask: Callable[[Tensor], dict[str, Tensor]], pictures: Pictures
    ) -> Iterator[dict[str, Tensor]]:
        """What ``ask`` gives for a batch of pictures in [0, 1] at a time, on the CPU."""
        device = self.method.backbone.device
        waiting: dict[
            str, Tensor
        ] = {}  # answers that the device is working on while the next batch is made ready

        def arrived() -> dict[str, Tensor]:
            return {name: rows.float().cpu() for name, rows in waiting.items()}

        size = BATCH.get(device.type, 64)
        pin = device.type == "cuda"
        for batch in batches(
            pictures, range(len(pictures)), size, "plain", self.model.transform, pin=pin
        ):
            answers = ask(moved(batch.pictures, device).float() / 255)
            if waiting:
                yield arrived()
            waiting = answers
        if waiting:
            yield arrived()

    def answered(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Logits (N, C) by output, the answer's last, and the likeness (N,) under ``LIKENESS``
        where there is one.
        """
        likeness = self.method.likeness(features)
        return self.method.answer(features) | ({} if likeness is None else {LIKENESS: likeness})

    def seen(self, images: Tensor, looking: bool) -> dict[str, Tensor]:
        """What ``answered`` gives of pictures in [0, 1], and under ``LOOKED`` how they look."""
        found = self.answered(self.method.embed(images))
        if self.careful:
            mirrored = self.answered(self.method.embed(images.flip(3)))
            found = {name: (rows + mirrored[name]) / 2 for name, rows in found.items()}
        return found | ({LOOKED: looked(images)} if looking else {})

    def scored(self, pictures: Pictures, looking: bool = False) -> Iterator[dict[str, Tensor]]:
        """What ``seen`` gives of a batch at a time, on the CPU."""
        return self.asked(lambda images: self.seen(images, looking), pictures)

    def logits(self, pictures: Pictures) -> Iterator[Tensor]:
        """Those of the answer (n, C), of a batch at a time."""
        return (found[self.outputs[-1]] for found in self.scored(pictures))

    def features(self, pictures: Pictures) -> Iterator[Tensor]:
        """Features (n, d′) of a batch at a time, on the CPU: of every network that answers, side by
        side.
        """
        return (
            torch.cat(list(found.values()), dim=1)
            for found in self.asked(self.method.embed, pictures)
        )

    def answers(
        self,
        pictures: Any,
        *,
        unknown: float | None = 0.05,
        detail: bool = True,
        sets: float | None = None,
        drift: Drift | None = None,
    ) -> Iterator[Answer]:
        """The answers one by one; see ``answers_of``."""
        parts = self.scored(unlabelled(pictures), drift is not None)
        limits = self.limits(unknown, sets)
        return self._answers(parts, limits, detail, drift)

    def _answers(
        self,
        parts: Iterator[dict[str, Tensor]],
        limits: Limits,
        detail: bool,
        drift: Drift | None,
    ) -> Iterator[Answer]:
        for found in parts:
            if drift is not None:
                self.watch(found, drift)
            yield from self.answers_of(found, limits, detail)

    def watch(self, found: Mapping[str, Tensor], drift: Drift) -> None:
        """Let it see a batch, of which ``seen`` has given this with looks."""
        best = found[self.outputs[-1]].argmax(dim=1)
        drift.see(best.tolist(), self.known_score(found).tolist(), found[LOOKED].tolist())

    def known_score(self, found: Mapping[str, Tensor]) -> Tensor:
        """How known each picture of a batch looks (n,), from what ``answered`` has given."""
        return unknown_score(found[self.outputs[-1]], found.get(LIKENESS), self.calibration)

    def probabilities(self, found: Mapping[str, Tensor], outputs: Sequence[str]) -> Tensor:
        """Those (n, C) by each of the ``outputs``, one behind the other: one search finds all."""
        logits = torch.cat([found[name] for name in outputs])
        return probabilities(logits, self.calibration, self.known_score(found).repeat(len(outputs)))

    def answers_of(
        self, found: Mapping[str, Tensor], limits: Limits, detail: bool
    ) -> Iterator[Answer]:
        """The answers to a batch; ``found``: what ``answered`` has given. ``detail``: with all
        opinions.
        """
        said = self.outputs if detail else self.outputs[-1:]
        every = self.probabilities(found, said)
        p = {name: rows.numpy() for name, rows in zip(said, every.chunk(len(said)), strict=True)}
        weights = (
            {name: rows.numpy() for name, rows in self.method.weights(found).items()}
            if detail
            else None
        )
        scores = self.known_score(found).double().numpy()
        return make_answers(self.known, p, scores, limits, is_calibrated(self.calibration), weights)


class Judged(NamedTuple):
    """The answer to the picture at ``place``; ``margin``: the logit of its own class less the
    largest other one.
    """

    place: int
    label: Label
    answer: Answer
    margin: float

    @property
    def right(self) -> bool:
        return self.answer.label == self.label


def evaluate(
    now: Snapshot, pictures: Pictures, unknown: float = 0.05
) -> tuple[dict[str, Any], list[Judged]]:
    """(numbers fit for JSON, the answers to pictures of known classes); others only show whether it
    says unknown.
    """
    known = {label: c for c, label in enumerate(now.known)}
    limits = now.limits(unknown)
    pictures = as_meant(pictures, now.model.header)
    said: list[tuple[Answer, float]] = []
    for found in now.scored(pictures):
        main = found[now.outputs[-1]]
        labels = pictures.labels[len(said) : len(said) + len(main)]
        own = torch.tensor([known.get(label, 0) for label in labels])[:, None]
        margins = main.gather(1, own) - main.scatter(1, own, NO_LOGIT).amax(dim=1, keepdim=True)
        said += zip(
            now.answers_of(found, limits, detail=False), margins[:, 0].tolist(), strict=True
        )
    every = [
        Judged(i, label, *one)
        for i, (label, one) in enumerate(zip(pictures.labels, said, strict=True))
    ]
    strangers = [one.answer.unknown for one in every if one.label not in known]
    given = [one for one in every if one.label in known]
    sure = torch.tensor(
        [one.answer.probability for one in given if one.answer.probability is not None]
    )
    # all of them or none are calibrated
    correct = torch.tensor([one.right for one in given])[: len(sure)]
    by_class: dict[Any, list[bool]] = {}
    for one in given:
        by_class.setdefault(one.label, []).append(one.right)
    mixed = Counter((one.label, one.answer.label) for one in given if not one.right)
    return {
        "pictures": len(given),
        "accuracy": mean([one.right for one in given]),
        "error": expected_error(sure, correct),
        "bins": reliability(sure, correct),
        "unknown": unknown,
        "false_alarms": mean([one.answer.unknown for one in given]),
        "unknown_pictures": len(strangers),
        "found": mean(strangers),
        "classes": [[label, mean(hits), len(hits)] for label, hits in by_class.items()],
        "confused": [
            [true, said, count] for (true, said), count in mixed.most_common(MAX_CONFUSIONS)
        ],
    }, given

"""Calibrated probabilities and the answer ``unknown``, from learned pictures that are left out in turn.

Leave-one-out in closed form needs no pictures beyond those that are learned, and none of them later: some features per
class are kept, float16, so that the model can be calibrated again when it has learned more. The temperature is the one
of least negative log-likelihood; the largest probability is then corrected by a logistic regression of being correct. A
picture is unknown if its score is below that of the share of known pictures that may be called unknown, among those
with the same answer where they are enough for that share, else among all.
"""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from safecl.classifier.enough import interval
from safecl.heads.leave_one_out import leaving_out, one_of_each
from safecl.heads.solve import factors_kept
from safecl.methods.method import Method
from safecl.runtime.answer import is_calibrated

LABELS = ("targets", "hashes")  # of what is kept of pictures, all but features
KEPT_PER_CLASS = 20  # pictures of a session of which features are kept
MAX_JUDGED = 1024  # pictures that are left out in turn after a session
MIN_CALIBRATING = 19  # pictures from which a temperature is fitted, and by which 5 % can be called unknown
BINS = 15  # of the expected calibration error
MAX_PAIRS = 100  # of classes that are confused, the most frequent
EPS = 1e-6  # that probabilities are away from 0 and 1, at least
SLOPE_PRIOR, OFFSET_PRIOR = 25.0, 4.0  # of ``fit_trust``: 1 / variance


def chosen(targets: Tensor, each: int = KEPT_PER_CLASS) -> Tensor:
    """The positions of the first ``each`` pictures of every class: (n,)."""
    return (one_of_each(targets) < each).nonzero()[:, 0]


def some(count: int, most: int = MAX_JUDGED) -> Tensor:
    """At most ``most`` of ``count`` positions, drawn evenly and always the same: (n,)."""
    if count <= most:
        return torch.arange(count)
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))[:most].sort().values


def can_be_left_out(targets: Tensor, learned: Tensor) -> Tensor:
    """Positions of ``targets`` (n,) whose class has more than one picture among all that were ``learned`` (N,).

    The only picture of a class cannot be left out: nothing would be known of the class.
    """
    return (learned.bincount(minlength=int(targets.max()) + 1)[targets] > 1).nonzero()[:, 0]


@torch.no_grad()
@factors_kept()
def left_out_answers(
    method: Method, features: Mapping[str, Tensor], targets: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """(logits (n, C), logits with half of the pictures, likeness (n,)) of pictures that were learned, left out.

    ``features`` (n, d) by network. One picture of every class is left out at a time; then every other one of each.
    """
    device, main = method.backbone.device, method.outputs[-1]
    targets, here = targets.to(device), {name: rows.to(device).float() for name, rows in features.items()}
    # A picture that was learned again is left out with its twins, by the group of the first; float16 as it is kept.
    alike = torch.unique(next(iter(here.values())).half().float(), dim=0, return_inverse=True)[1]
    places = torch.arange(len(alike), device=device)
    first = torch.zeros_like(places).scatter_reduce(0, alike, places, "amin", include_self=False)[alike]
    groups, included = one_of_each(targets)[first], method.included(here)
    with leaving_out(method, targets, groups, included):
        logits, likeness = method.answer(here)[main].float().cpu(), method.likeness(here)
    with leaving_out(method, targets, groups % 2, included):
        halved = method.answer(here)[main].float().cpu()
    return logits, halved, None if likeness is None else likeness.float().cpu()


def recalled(method: Method, kept: Mapping[str, Tensor], rows: Tensor) -> dict[str, Tensor]:
    """Features (n, d) by network as they are today, from what was kept of the pictures at ``rows``."""
    own = {name: each[rows].to(method.backbone.device) for name, each in kept.items()}
    return method.recalled({name: own[name].float() for name in own if name not in LABELS}, own["targets"])


def recalibrate(method: Method, kept: Mapping[str, Tensor], seen: Mapping[str, Tensor]) -> dict[str, Any] | None:
    """The calibration by pictures of which features are kept, if they can be left out; ``seen``: classes of all."""
    if not method.leaves_out or not len(kept.get("targets", ())):
        return None
    rows = can_be_left_out(kept["targets"], seen["classes"])
    rows = rows[some(len(rows))]
    targets = kept["targets"][rows]
    logits, halved, likeness = left_out_answers(method, recalled(method, kept, rows), targets)
    return calibrate(targets, logits, halved, likeness)


def calibrate(targets: Tensor, logits: Tensor, halved: Tensor, likeness: Tensor | None = None) -> dict[str, Any] | None:
    """What calibrates a model, and how good it is, fit for JSON; None without pictures.

    From classes (n,) of pictures, and what ``left_out_answers`` gives of them; a likeness that some lack is not used.
    """
    if not len(targets):
        return None
    if likeness is not None and not likeness.isfinite().all():
        likeness = None
    answers, correct = logits.argmax(dim=1), logits.argmax(dim=1) == targets
    found: dict[str, Any] = {"temperature": None, "slope": 1.0, "offset": 0.0, "error": None, "bins": []}
    if len(targets) >= MIN_CALIBRATING and logits.shape[1] > 1:
        found["temperature"] = fit_temperature(logits, targets)
        sure = torch.softmax(logits / found["temperature"], dim=1).amax(dim=1)
        found["slope"], found["offset"] = fit_trust(sure, correct)
        sure = probabilities(logits, found).amax(dim=1)
        found |= {"error": expected_error(sure, correct), "bins": reliability(sure, correct)}
    found["scales"] = None if likeness is None else [_scale(logits.amax(dim=1)), _scale(likeness)]
    scores: list[list[float]] = [[] for _ in range(logits.shape[1])]
    for answer, score in sorted(zip(answers.tolist(), unknown_score(logits, likeness, found).tolist(), strict=True)):
        scores[answer].append(float(f"{score:.6g}"))
    columns = (torch.ones_like(correct), correct, halved.argmax(dim=1) == targets)
    classes = torch.stack([targets.bincount(rows.double(), logits.shape[1]) for rows in columns], dim=1)
    judged = classes[classes[:, 0] > 0]
    accuracy = float((judged[:, 1] / judged[:, 0]).mean())
    pictures = len(judged) ** 2 / float((1 / judged[:, 0]).sum())  # that would tell it as precisely
    own = {"accuracy": accuracy, "interval": interval(accuracy, pictures), "classes": classes.long().tolist()}
    pairs = Counter(zip(targets[~correct].tolist(), answers[~correct].tolist(), strict=True))
    own["confused"] = [[*pair, n] for pair, n in pairs.most_common(MAX_PAIRS)]
    return {**found, **own, "scores": scores, "pictures": len(targets)}


def _scale(values: Tensor) -> list[float]:
    """[mean, standard deviation], not 0."""
    spread = float(values.double().std()) if len(values) > 1 else 0.0
    return [float(f"{value:.6g}") for value in (float(values.double().mean()), spread or 1.0)]


def probabilities(logits: Tensor, calibration: Mapping[str, Any] | None) -> Tensor:
    """softmax(z / T) with a T for each picture, such that its largest probability is the corrected one: (N, C)."""
    if not is_calibrated(calibration) or logits.shape[1] < 2:
        return torch.softmax(logits, dim=1)
    assert calibration is not None
    z = logits.double() / calibration["temperature"]
    p = torch.softmax(z, dim=1)
    line = calibration["slope"] * torch.logit(p.amax(dim=1), eps=EPS) + calibration["offset"]
    wanted = torch.sigmoid(line).clamp(min=1 / z.shape[1], max=1 - EPS)[:, None]
    # The log of a factor on z: of two that all but tie, a large one would take rounding for a difference.
    low, high = torch.full_like(wanted, -7.0), torch.full_like(wanted, 2.0)
    for _ in range(30):
        middle = (low + high) / 2
        under = torch.softmax(z * middle.exp(), dim=1).amax(dim=1, keepdim=True) < wanted
        low, high = torch.where(under, middle, low), torch.where(under, high, middle)
    return torch.softmax(z * ((low + high) / 2).exp(), dim=1).to(logits)


def fit_trust(sure: Tensor, correct: Tensor) -> tuple[float, float]:
    """(a, b) of the logistic regression correct ~ sigmoid(a · logit(sure) + b), drawn to (1, 0) as by a few pictures.

    One temperature leaves large probabilities too large where few pictures are taken for something quite different.
    """
    from scipy.optimize import minimize  # slow to import, and answers do without it

    x, y = torch.logit(sure.double(), eps=EPS), correct.double()

    def loss(line: Any) -> float:
        a, b = map(float, line)
        return (
            float(F.binary_cross_entropy_with_logits(a * x + b, y, reduction="sum"))
            + (SLOPE_PRIOR * (a - 1) ** 2 + OFFSET_PRIOR * b**2) / 2
        )

    a, b = minimize(loss, (1.0, 0.0)).x.tolist()
    return (a, b) if a > 0 else (1.0, 0.0)


def unknown_score(logits: Tensor, likeness: Tensor | None, calibration: Mapping[str, Any] | None) -> Tensor:
    """How known a picture looks: little where its largest logit or its likeness is small. (N, C), (N,) → (N,).

    Each in standard deviations from its mean over known pictures, and of both a smooth minimum.
    """
    largest = logits.amax(dim=1)
    if likeness is None or not calibration or calibration["scales"] is None:
        return largest
    (middle, spread), (usual, wide) = calibration["scales"]
    return -torch.logaddexp((middle - largest) / spread, (usual - likeness) / wide)


def fit_temperature(logits: Tensor, targets: Tensor) -> float:
    """The T in [0.01, 100] with the least cross entropy of softmax(z / T).

    As if one more picture than there are had been classified wrongly: none of n pictures wrong proves nothing.
    """
    from scipy.optimize import minimize_scalar  # slow to import, and answers do without it

    z, smoothing = logits.double(), 1 / (len(targets) + 2)

    def loss(log_t: float) -> float:
        return float(F.cross_entropy(z / math.exp(log_t), targets, label_smoothing=smoothing))

    return math.exp(minimize_scalar(loss, bounds=(math.log(1e-2), math.log(1e2))).x)


def expected_error(sure: Tensor, correct: Tensor) -> float | None:
    """The expected calibration error: how far confidence (n,) and accuracy are apart, over bins of equal width."""
    if not len(sure):
        return None
    return sum(n * abs(confidence - accuracy) for confidence, accuracy, n in reliability(sure, correct)) / len(sure)


def reliability(sure: Tensor, correct: Tensor) -> list[tuple[float, float, int]]:
    """(mean confidence, accuracy, pictures) of every bin that has pictures."""
    which = (sure * BINS).long().clamp(max=BINS - 1)
    bins = [which == b for b in torch.unique(which)]
    return [(float(sure[rows].mean()), float(correct[rows].float().mean()), int(rows.sum())) for rows in bins]

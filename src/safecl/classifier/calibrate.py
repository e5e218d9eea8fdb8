"""Honest probabilities and the answer ``unknown``, from pictures that were learned, each left out in turn.

Leave-one-out in closed form needs no picture beyond those that are learned, and none of them
later: of each class the features of some pictures are kept, float16, so that the model can be calibrated again when
it has learned more. The temperature is the one of least negative log-likelihood; the largest probability is then
corrected by a logistic regression of being right. A picture is unknown if its largest
logit is below that of the share of known pictures that may be called unknown.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from safecl.heads.leave_one_out import leaving_out, one_of_each
from safecl.methods.method import Method

EACH, MOST = 20, 1024  # pictures that are kept of a class in a session; of all pictures that are looked at
BINS = 15  # of the expected calibration error
FEWEST = 20  # pictures from which a temperature is fitted
EPS, PRIOR = 1e-6, 4.0  # probabilities are this far from 0 and 1; strength of the prior of ``fit_trust``


def chosen(targets: Tensor, each: int = EACH) -> Tensor:
    """The positions of the first ``each`` pictures of every class: (n,)."""
    rows = [(targets == c).nonzero()[:each, 0] for c in torch.unique(targets).tolist()]
    return torch.cat(rows).sort().values if rows else torch.zeros(0, dtype=torch.long)


def some(count: int, most: int = MOST) -> Tensor:
    """At most ``most`` of ``count`` positions, drawn evenly and always the same: (n,)."""
    if count <= most:
        return torch.arange(count)
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))[:most].sort().values


@torch.no_grad()
def left_out_logits(method: Method, features: Mapping[str, Tensor], targets: Tensor) -> Tensor:
    """The method's answer (n, C) to features (n, d) by network of pictures it has learned, left out."""
    device = method.backbone.device
    targets = targets.to(device)
    with leaving_out(method, targets, one_of_each(targets)):
        logits = method.answer({name: rows.to(device).float() for name, rows in features.items()})
    return logits[method.outputs[-1]].float().cpu()


def calibrate(logits: Tensor, targets: Tensor) -> dict[str, Any]:
    """Temperature, sorted scores of known pictures, and how good both are; fit for JSON."""
    temperature = fit_temperature(logits, targets) if len(logits) >= FEWEST and logits.shape[1] > 1 else 1.0
    right = logits.argmax(dim=1) == targets
    slope, offset = fit_trust(torch.softmax(logits / temperature, dim=1).amax(dim=1), right)
    found = {"temperature": temperature, "slope": slope, "offset": offset}
    sure = probabilities(logits, found).amax(dim=1)
    return {
        **found,
        "pictures": len(targets),
        "scores": [float(f"{score:.6g}") for score in unknown_score(logits).sort().values.tolist()],
        "accuracy": float(right.float().mean()) if len(right) else None,
        "error": expected_error(sure, right),
        "bins": reliability(sure, right),
    }


def probabilities(logits: Tensor, calibration: Mapping[str, Any] | None) -> Tensor:
    """softmax(z / T) with a T for each picture, such that its largest probability is the corrected one: (N, C)."""
    if not calibration or logits.shape[1] < 2:
        return torch.softmax(logits, dim=1)
    z = logits.double() / calibration["temperature"]
    p = torch.softmax(z, dim=1)
    line = calibration["slope"] * torch.logit(p.amax(dim=1), eps=EPS) + calibration["offset"]
    wanted = torch.sigmoid(line).clamp(min=1 / z.shape[1], max=1 - EPS)[:, None]
    low, high = torch.full_like(wanted, -7.0), torch.full_like(wanted, 7.0)  # log of a factor on z
    for _ in range(30):
        middle = (low + high) / 2
        under = torch.softmax(z * middle.exp(), dim=1).amax(dim=1, keepdim=True) < wanted
        low, high = torch.where(under, middle, low), torch.where(under, high, middle)
    return torch.softmax(z * ((low + high) / 2).exp(), dim=1).to(logits)


def fit_trust(sure: Tensor, right: Tensor) -> tuple[float, float]:
    """(a, b) of the logistic regression right ~ sigmoid(a · logit(sure) + b), drawn to (1, 0) as by a few pictures.

    One temperature leaves large probabilities too large where a few pictures are taken for something quite different.
    """
    x = torch.stack([torch.logit(sure.double(), eps=EPS), torch.ones(len(sure), dtype=torch.float64)], dim=1)
    w = start = torch.tensor([1.0, 0.0], dtype=torch.float64)
    for _ in range(30):  # Newton's method
        q = torch.sigmoid(x @ w)
        slope = x.T @ (q - right.double()) + PRIOR * (w - start)
        w = w - torch.linalg.solve((x.T * (q * (1 - q))) @ x + PRIOR * torch.eye(2, dtype=torch.float64), slope)
    a, b = w.tolist()
    return (a, b) if a > 0 else (1.0, 0.0)


def unknown_score(logits: Tensor) -> Tensor:
    """How known a picture looks: the largest logit. (N, C) → (N,)."""
    return logits.amax(dim=1)


def threshold(scores: list[float], rate: float) -> float:
    """The score below which a picture is unknown, so that a share ``rate`` of known ones is; −∞ with too few."""
    rank = math.floor(rate * (len(scores) + 1))  # a new known picture falls below the k-th of n with k / (n + 1)
    return scores[rank - 1] if rank >= 1 else -math.inf


def fit_temperature(logits: Tensor, targets: Tensor) -> float:
    """The T > 0 with the least cross entropy of softmax(z / T), by golden section on log T.

    As if one more picture than there are had been answered wrongly: none of n pictures wrong is no proof of certainty.
    """
    smoothing = 1 / (len(targets) + 2)

    def loss(log_t: float) -> float:
        return float(F.cross_entropy(logits.double() / math.exp(log_t), targets, label_smoothing=smoothing))

    low, high, golden = math.log(1e-2), math.log(1e2), (math.sqrt(5) - 1) / 2
    a, b = high - golden * (high - low), low + golden * (high - low)
    at_a, at_b = loss(a), loss(b)
    for _ in range(40):
        if at_a < at_b:
            high, b, at_b = b, a, at_a
            a = high - golden * (high - low)
            at_a = loss(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + golden * (high - low)
            at_b = loss(b)
    return math.exp((low + high) / 2)


def expected_error(sure: Tensor, right: Tensor) -> float | None:
    """The expected calibration error: how far confidence (n,) and accuracy are apart, over bins of equal width."""
    if not len(sure):
        return None
    return sum(n * abs(confidence - accuracy) for confidence, accuracy, n in reliability(sure, right)) / len(sure)


def reliability(sure: Tensor, right: Tensor) -> list[tuple[float, float, int]]:
    """(mean confidence, accuracy, pictures) of every bin that has pictures."""
    which = (sure * BINS).long().clamp(max=BINS - 1)
    found = []
    for b in torch.unique(which).tolist():
        rows = which == b
        found.append((float(sure[rows].mean()), float(right[rows].float().mean()), int(rows.sum())))
    return found

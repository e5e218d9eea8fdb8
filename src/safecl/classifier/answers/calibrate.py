"""Calibrated probabilities and the answer ``unknown``, from learned pictures that are left out in
turn.

Leave-one-out in closed form needs no pictures beyond those that are learned, and none of them
later: some features per class are kept, float16, so that the model can be calibrated again when it
has learned more. The temperature is the one of least negative log-likelihood; the largest
probability is then corrected by a logistic regression of being correct; of what looks hardly known
it is no larger than as many pictures can show. A picture is unknown if its score is below that of
the share of known pictures that may be called unknown, among those with the same answer where they
are enough for that share, else among all.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from safecl.classifier.answers.enough import interval, mean_over
from safecl.classifier.modelfile.rows import LABELS, LOOK
from safecl.heads.left_out import LeftOut, one_of_each
from safecl.heads.solve import factors_kept
from safecl.methods.method import Judging, Method
from safecl.runtime.answer import is_calibrated, thresholds
from safecl.runtime.drift import looks, rounded

KEPT_PER_CLASS = 20  # pictures of a session of which features are kept
MAX_JUDGED = 1024  # pictures that are left out in turn after a session
MIN_CALIBRATING = (
    19  # pictures from which a temperature is fitted, and by which 5 % can be called unknown
)
MIN_CLASSES = 3  # of which one can leave, and two stay
NO_LOGIT = -1e9  # of the class that has left
UNKNOWN = 0.05  # share of known pictures that may be called unknown, where nobody says otherwise
BINS = 15  # of the expected calibration error
MAX_PAIRS = 100  # of classes that are confused, the most frequent
# of the energy and of the likeness, where no class can be left out: see benchmarks/frozen.py
WEIGHTS = (2.0, 1.0)
WEIGHT_PRIOR = 0.01  # how strongly weights are drawn to half of these
CLIPPED = (-6.0, 4.0)  # energy and likeness, in their units, that weights are fitted to
EPS = 1e-6  # that probabilities are away from 0 and 1, at least
SLOPE_PRIOR = 25.0
OFFSET_PRIOR = 4.0  # of ``fit_trust``: 1 / variance


def chosen(targets: Tensor, each: int = KEPT_PER_CLASS) -> Tensor:
    """The positions of the first ``each`` pictures of every class: (n,)."""
    return (one_of_each(targets) < each).nonzero()[:, 0]


def looked(images: Tensor) -> Tensor:
    """``runtime.drift.looks`` of images (N, 3, H, W) in [0, 1]: (N, 6)."""
    return torch.stack(looks(images), dim=1)


def some(count: int, most: int = MAX_JUDGED) -> Tensor:
    """At most ``most`` of ``count`` positions, drawn evenly and always the same: (n,)."""
    if count <= most:
        return torch.arange(count)
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))[:most].sort().values


def once(hashes: Tensor, classes: Tensor) -> Tensor:
    """Where each picture of a class stands first: bool (n,). One that was learned again proves
    nothing more.
    """
    which = torch.unique(torch.stack([hashes, classes]), dim=1, return_inverse=True)[1]
    places = torch.arange(len(which))
    return (
        torch.zeros_like(places).scatter_reduce(0, which, places, "amin", include_self=False)[which]
        == places
    )


def can_be_left_out(targets: Tensor, seen: Mapping[str, Tensor]) -> Tensor:
    """Positions of ``targets`` (n,) whose class has more than one picture among all that were
    ``seen``.

    The only picture of a class cannot be left out: nothing would be known of the class.
    """
    classes = seen["classes"][once(seen["hashes"], seen["classes"])]
    return (classes.bincount(minlength=int(targets.max()) + 1)[targets] > 1).nonzero()[:, 0]


@torch.no_grad()
@factors_kept()
def left_out_answers(
    method: Method, features: Mapping[str, Tensor], targets: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """(logits (n, C), logits with half of the pictures, likeness (n,)) of pictures that were
    learned, left out.

    ``features`` (n, d) by network. One picture of every class is left out at a time; then every
    other one of each.
    """
    device = method.backbone.device
    main = method.outputs[-1]
    targets = targets.to(device)
    here = {name: rows.to(device).float() for name, rows in features.items()}
    # A picture that was learned again is left out with its twins, by the group of the first;
    # float16 as it is kept.
    alike = torch.unique(next(iter(here.values())).half().float(), dim=0, return_inverse=True)[1]
    places = torch.arange(len(alike), device=device)
    first = torch.zeros_like(places).scatter_reduce(0, alike, places, "amin", include_self=False)[
        alike
    ]
    groups = one_of_each(targets)[first]
    each = LeftOut(targets, groups, (method.judging or Judging()).included(here))
    half = LeftOut(targets, groups % 2, each.rows)
    logits = method.answer(here, each)[main].float().cpu()
    likeness = method.likeness(here, each)
    halved = method.answer(here, half)[main].float().cpu()
    return logits, halved, None if likeness is None else likeness.float().cpu()


@torch.no_grad()
@factors_kept()
def stranger_answers(
    method: Method,
    features: Mapping[str, Tensor],
    targets: Tensor,
    seen: Mapping[str, Tensor],
) -> tuple[Tensor, Tensor | None] | None:
    """(logits (n, C), likeness (n,)) of pictures whose class leaves wholly: strangers that look
    like the classes that stay. None where no class has all of its pictures here, or two would not
    stay.

    Exact for networks that were not tuned on these pictures.
    """
    learned = seen["classes"].bincount(minlength=len(method.classes))
    here = targets.bincount(minlength=len(method.classes))
    rows = (here[targets] == learned[targets]).nonzero()[:, 0]
    if not len(rows) or int((learned > 0).sum()) < MIN_CLASSES:
        return None
    device = method.backbone.device
    own = targets[rows].to(device)
    some = {name: each[rows.to(each.device)].to(device).float() for name, each in features.items()}
    left_out = LeftOut(own, own, (method.judging or Judging()).included(some))
    logits = method.answer(some, left_out)[method.outputs[-1]].float()
    likeness = method.likeness(some, left_out)
    logits = logits.scatter(1, own[:, None], NO_LOGIT)
    return logits.cpu(), None if likeness is None else likeness.float().cpu()


def recalled(method: Method, kept: Mapping[str, Tensor], rows: Tensor) -> dict[str, Tensor]:
    """Features (n, d) by network as they are today, from what was kept of the pictures at
    ``rows``.
    """
    own = {name: each[rows].to(method.backbone.device) for name, each in kept.items()}
    features = {name: own[name].float() for name in own if name not in (*LABELS, LOOK)}
    return (method.judging or Judging()).recall(features, own["targets"])


def recalibrate(
    method: Method, kept: Mapping[str, Tensor], seen: Mapping[str, Tensor]
) -> dict[str, Any] | None:
    """The calibration by pictures of which features are kept, if they can be left out; ``seen``:
    all of them.
    """
    if method.judging is None or not len(kept.get("targets", ())):
        return None
    rows = can_be_left_out(kept["targets"], seen)
    rows = rows[some(len(rows))]
    targets = kept["targets"][rows]
    features = recalled(method, kept, rows)
    logits, halved, likeness = left_out_answers(method, features, targets)
    strangers = stranger_answers(method, features, targets, seen)
    own = once(kept["hashes"][rows], targets)
    like = None if likeness is None else likeness[own]
    look = kept[LOOK][rows][own] if LOOK in kept else None
    return calibrate(targets[own], logits[own], halved[own], like, strangers, look)


def of_more(calibration: Mapping[str, Any], classes: int) -> dict[str, Any]:
    """The same of a model that knows so many ``classes`` by now; of the last ones nothing is
    judged.
    """
    more = classes - len(calibration["classes"])
    rows = [*calibration["classes"], *([0, 0, 0] for _ in range(more))]
    lists = {
        key: [*calibration[key], *([] for _ in range(more))]
        for key in ("scores", "own", "looks")
        if calibration.get(key) is not None
    }
    return {**calibration, **lists, "classes": rows}


def calibrate(
    targets: Tensor,
    logits: Tensor,
    halved: Tensor,
    likeness: Tensor | None = None,
    strangers: tuple[Tensor, Tensor | None] | None = None,
    look: Tensor | None = None,
) -> dict[str, Any] | None:
    """What calibrates a model, and how good it is, fit for JSON; None without pictures.

    From classes (n,) of pictures, what ``left_out_answers`` gives of them, ``stranger_answers``,
    and how they look (n, 6), NaN where nobody knows; a likeness that some lack is not used.
    """
    if not len(targets):
        return None
    if likeness is not None and not likeness.isfinite().all():
        likeness = None
    answers = logits.argmax(dim=1)
    correct = logits.argmax(dim=1) == targets
    found: dict[str, Any] = {
        "temperature": None,
        "slope": 1.0,
        "offset": 0.0,
        "error": None,
        "bins": [],
        "scales": None,
        "weights": None,
    }
    calibrated = len(targets) >= MIN_CALIBRATING and logits.shape[1] > 1
    if calibrated:
        found["temperature"] = fit_temperature(logits, targets)
        sure = torch.softmax(logits / found["temperature"], dim=1).amax(dim=1)
        found["slope"], found["offset"] = fit_trust(sure, correct)
    if likeness is not None:
        found["scales"] = [_scale(energy(logits, found)), _scale(likeness)]
        found["weights"] = [*WEIGHTS]
        if strangers is not None and strangers[1] is not None:
            both = _parts(logits, likeness, found)
            found["weights"] = fit_weights(both, _parts(*strangers, found))
    known = unknown_score(logits, likeness, found)
    scores: list[list[float]] = [[] for _ in range(logits.shape[1])]
    seen: list[list[list[float]]] = [[] for _ in range(logits.shape[1])]
    for i in known.argsort(stable=True).tolist():
        scores[int(answers[i])].append(float(f"{float(known[i]):.6g}"))
        if look is not None:
            seen[int(answers[i])].append(
                rounded(look[i].tolist()) if look[i].isfinite().all() else []
            )
    found["scores"] = scores
    found["looks"] = None if look is None else seen
    found["strangers"] = None if strangers is None else _noticed(*strangers, found)
    p = probabilities(logits, found, known)
    if calibrated:
        sure = p.amax(dim=1)
        found |= {"error": expected_error(sure, correct), "bins": reliability(sure, correct)}
    columns = (torch.ones_like(correct), correct, halved.argmax(dim=1) == targets)
    classes = torch.stack(
        [targets.bincount(rows.double(), logits.shape[1]) for rows in columns], dim=1
    )
    rows = classes.long().tolist()
    accuracy, precise = mean_over(rows)
    own: dict[str, Any] = {
        "accuracy": accuracy,
        "interval": interval(accuracy, precise),
        "classes": rows,
    }
    mine = p.gather(1, targets[:, None])[:, 0]
    own["own"] = [
        sorted(float(f"{p:.6g}") for p in mine[targets == c].tolist())
        for c in range(logits.shape[1])
    ]
    pairs = Counter(zip(targets[~correct].tolist(), answers[~correct].tolist(), strict=True))
    own["confused"] = [[*pair, n] for pair, n in pairs.most_common(MAX_PAIRS)]
    return {**found, **own, "pictures": len(targets)}


def _noticed(
    logits: Tensor, likeness: Tensor | None, calibration: Mapping[str, Any]
) -> list[int] | None:
    """[strangers (n) that would be called unknown, all of them]; None where that cannot be told."""
    limits = torch.from_numpy(thresholds(calibration, UNKNOWN, logits.shape[1]))
    limits = limits[logits.argmax(dim=1)]
    if limits.isnan().any():
        return None
    known = unknown_score(logits, likeness, calibration).double()
    return [int((known < limits).sum()), len(known)]


def _scale(values: Tensor) -> list[float]:
    """[median, its distance from the twentieth that is least]; 1 where the rest is rounding."""
    middle, low = torch.quantile(values.double(), torch.tensor([0.5, 0.05]).double()).tolist()
    spread = middle - low
    if spread <= EPS * (1 + abs(middle)):
        spread = 1.0
    return [float(f"{value:.6g}") for value in (middle, spread)]


def most_sure(scores: Tensor, calibration: Mapping[str, Any]) -> Tensor:
    """The largest probability that is shown of pictures that look so known: (N,).

    Of the quarter that looks least known as if one more picture than those that looked no more
    known had been classified wrongly: what was hardly seen proves nothing.
    """
    every = [score for own in calibration["scores"] for score in own]
    seen = (scores[:, None] >= torch.tensor(every).to(scores)).double().sum(dim=1)
    return torch.where(4 * seen <= len(every), (seen + 1) / (seen + 2), 1.0)


def probabilities(
    logits: Tensor, calibration: Mapping[str, Any] | None, scores: Tensor | None = None
) -> Tensor:
    """softmax(z / T) with a T for each picture, such that its largest probability is the corrected
    one, or what its score (N,) allows: (N, C).
    """
    if not is_calibrated(calibration) or logits.shape[1] < 2:
        return torch.softmax(logits, dim=1)
    assert calibration is not None
    z = logits.double() / calibration["temperature"]
    p = torch.softmax(z, dim=1)
    line = calibration["slope"] * torch.logit(p.amax(dim=1), eps=EPS) + calibration["offset"]
    sure = torch.sigmoid(line)
    if scores is not None:
        sure = torch.minimum(sure, most_sure(scores, calibration))
    wanted = sure.clamp(min=1 / z.shape[1], max=1 - EPS)[:, None]
    # The log of a factor on z: of two that all but tie, a large one would take rounding for a
    # difference.
    low = torch.full_like(wanted, -7.0)
    high = torch.full_like(wanted, 2.0)
    for _ in range(30):
        middle = (low + high) / 2
        under = torch.softmax(z * middle.exp(), dim=1).amax(dim=1, keepdim=True) < wanted
        low = torch.where(under, middle, low)
        high = torch.where(under, high, middle)
    return torch.softmax(z * ((low + high) / 2).exp(), dim=1).to(logits)


def fit_trust(sure: Tensor, correct: Tensor) -> tuple[float, float]:
    """(a, b) of the logistic regression correct ~ sigmoid(a · logit(sure) + b), drawn to (1, 0) as
    by a few pictures.

    One temperature leaves large probabilities too large where few pictures are taken for something
    quite different.
    """
    from scipy.optimize import minimize  # slow to import, and answers do without it

    x = torch.logit(sure.double(), eps=EPS)
    y = correct.double()

    def loss(line: Any) -> float:
        a, b = map(float, line)
        return (
            float(F.binary_cross_entropy_with_logits(a * x + b, y, reduction="sum"))
            + (SLOPE_PRIOR * (a - 1) ** 2 + OFFSET_PRIOR * b**2) / 2
        )

    a, b = minimize(loss, (1.0, 0.0)).x.tolist()
    return (a, b) if a > 0 else (1.0, 0.0)


def unknown_score(
    logits: Tensor, likeness: Tensor | None, calibration: Mapping[str, Any] | None
) -> Tensor:
    """How known a picture looks: little where its logits or its likeness are small. (N, C), (N,) →
    (N,).

    Of the energy and the likeness, each from its median over known pictures and in units of the
    distance to the least twentieth, a weighted sum. A model without weights was calibrated by an
    earlier version: the smooth minimum of the largest logit and the likeness.
    """
    largest = logits.amax(dim=1)
    if likeness is None or not calibration or calibration["scales"] is None:
        return largest
    (middle, spread), (usual, wide) = calibration["scales"]
    if (weights := calibration.get("weights")) is None:
        return -torch.logaddexp((middle - largest) / spread, (usual - likeness) / wide)
    known, like = _parts(logits, likeness, calibration)
    found: Tensor = weights[0] * known + weights[1] * like
    return found


def _parts(
    logits: Tensor, likeness: Tensor | None, calibration: Mapping[str, Any]
) -> tuple[Tensor, Tensor]:
    """Energy and likeness (N,), each from its median and in units of its spread."""
    assert likeness is not None
    (middle, spread), (usual, wide) = calibration["scales"]
    return (energy(logits, calibration) - middle) / spread, (likeness - usual) / wide


def fit_weights(known: Sequence[Tensor], strangers: Sequence[Tensor]) -> list[float]:
    """Weights of energy and likeness that tell known pictures from those of classes that were left
    out, by a logistic regression that counts both alike; none is negative, and their sum is fixed.

    Each of (n,) known ones and (m,) strangers. They are drawn to ``WEIGHTS``, and none is less than
    half of its own: near strangers alone say little of far ones.
    """
    from scipy.optimize import minimize  # slow to import, and answers do without it

    sides = []
    for rows, sign in ((known, 1.0), (strangers, -1.0)):
        x = torch.stack([*rows, torch.ones_like(rows[0])], dim=1).double().clamp(*CLIPPED)
        sides.append(sign * x)
    total = sum(WEIGHTS)
    usual = torch.tensor([*WEIGHTS, 0.0]).double() / 2

    def loss(values: Any) -> tuple[float, Any]:
        asked = torch.as_tensor(values)
        away = asked - usual
        away[2] = 0.0  # the offset is free
        found = WEIGHT_PRIOR * float(away.square().sum())
        slope = 2 * WEIGHT_PRIOR * away
        for x in sides:
            z = x @ asked
            found += float(F.softplus(-z).mean()) / 2
            slope = slope - (torch.sigmoid(-z)[:, None] * x).mean(dim=0) / 2
        return found, slope.numpy()

    bounds = [(0.0, None), (0.0, None), (None, None)]
    fitted = minimize(loss, usual.numpy(), jac=True, bounds=bounds).x.tolist()[:2]
    if not sum(fitted) > EPS:
        return [*WEIGHTS]
    least = [weight / 2 for weight in WEIGHTS]
    first = total * fitted[0] / sum(fitted)
    first = min(max(first, least[0]), total - least[1])
    return [float(f"{weight:.6g}") for weight in (first, total - first)]


def energy(logits: Tensor, calibration: Mapping[str, Any]) -> Tensor:
    """T log Σ exp(z / T), the largest logit where there is no T: (N,)."""
    temperature = calibration["temperature"]
    largest = logits.amax(dim=1)
    if temperature is None:
        return largest
    p = torch.softmax(logits / temperature, dim=1).amax(dim=1)
    found: Tensor = largest - temperature * p.log()
    return found


def fit_temperature(logits: Tensor, targets: Tensor) -> float:
    """The T in [0.01, 100] with the least cross entropy of softmax(z / T).

    As if one more picture than there are had been classified wrongly: none of n pictures wrong
    proves nothing.
    """
    from scipy.optimize import minimize_scalar  # slow to import, and answers do without it

    z = logits.double()
    smoothing = 1 / (len(targets) + 2)

    def loss(log_t: float) -> float:
        return float(F.cross_entropy(z / math.exp(log_t), targets, label_smoothing=smoothing))

    return math.exp(minimize_scalar(loss, bounds=(math.log(1e-2), math.log(1e2))).x)


def expected_error(sure: Tensor, correct: Tensor) -> float | None:
    """The expected calibration error: how far confidence (n,) and accuracy are apart, over bins of
    equal width.
    """
    if not len(sure):
        return None
    return sum(
        n * abs(confidence - accuracy) for confidence, accuracy, n in reliability(sure, correct)
    ) / len(sure)


def reliability(sure: Tensor, correct: Tensor) -> list[tuple[float, float, int]]:
    """(mean confidence, accuracy, pictures) of every bin that has pictures."""
    which = (sure * BINS).long().clamp(max=BINS - 1)
    bins = [which == b for b in torch.unique(which)]
    return [
        (float(sure[rows].mean()), float(correct[rows].float().mean()), int(rows.sum()))
        for rows in bins
    ]

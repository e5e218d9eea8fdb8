"""How good a model is on labelled pictures: accuracy, honesty of its probabilities, unknown classes."""

from collections import Counter
from typing import Any

import torch

from safecl.classifier.calibrate import expected_error, reliability
from safecl.classifier.classifier import ContinualClassifier
from safecl.streams.pictures.images import Pictures

MAX_CONFUSIONS = 10  # pairs of classes that are listed


def evaluate(model: ContinualClassifier, pictures: Pictures, unknown: float = 0.05) -> dict[str, Any]:
    """Numbers fit for JSON. Pictures of classes that the model does not know only show whether it says unknown."""
    known, right, sure, flagged, strangers = set(model.classes_.tolist()), [], [], [], []
    by_class: dict[Any, list[int]] = {}
    mixed: Counter[tuple[Any, Any]] = Counter()
    for label, answer in zip(pictures.labels, model.answers(pictures, unknown=unknown, detail=False), strict=True):
        if label not in known:
            strangers.append(answer.unknown)
            continue
        right.append(answer.label == label)
        sure.append(answer.probability)
        flagged.append(answer.unknown)
        by_class.setdefault(label, []).append(int(right[-1]))
        if not right[-1]:
            mixed[label, answer.label] += 1
    bins = reliability(torch.tensor(sure), torch.tensor(right)) if right else []
    return {
        "pictures": len(right),
        "accuracy": sum(right) / len(right) if right else None,
        "error": expected_error(torch.tensor(sure), torch.tensor(right)) if right else None,
        "bins": bins,
        "unknown": unknown,
        "false_alarms": sum(flagged) / len(flagged) if flagged else None,
        "unknown_pictures": len(strangers),
        "found": sum(strangers) / len(strangers) if strangers else None,
        "classes": [[label, sum(hits) / len(hits), len(hits)] for label, hits in by_class.items()],
        "confused": [[true, said, count] for (true, said), count in mixed.most_common(MAX_CONFUSIONS)],
    }

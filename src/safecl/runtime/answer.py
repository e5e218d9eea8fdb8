"""What a model says of one picture."""

from dataclasses import dataclass

from safecl.streams.labels import Label


@dataclass(frozen=True)
class Answer:
    """What a model says of one picture. ``opinions``: the likeliest classes of each output, with probabilities."""

    label: Label
    probability: float | None  # None where there were too few pictures to calibrate it
    unknown: bool | None  # None where there were too few pictures to tell
    nearest: list[tuple[Label, float]]
    opinions: dict[str, list[tuple[Label, float]]]
    weights: dict[str, float]  # of the slow and the fast learner in the answer, where the method has them
    score: float  # how known the picture looks; unknown if below ``threshold``
    threshold: float | None  # of pictures with this answer; −∞ where none may be called unknown

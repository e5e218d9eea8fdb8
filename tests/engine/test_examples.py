"""Which test pictures are kept for the page."""

import torch

from safecl.engine.evaluate import Answers
from safecl.engine.examples import confused


def test_confused_pairs_are_kept_by_frequency_with_a_picture_of_what_they_are_taken_for() -> None:
    targets, said = torch.tensor([0, 0, 0, 1, 1, 2, 2]), torch.tensor([1, 1, 0, 1, 2, 2, 0])
    answers = Answers([], list("abc"), targets, {"only": said})
    assert confused(answers) == ([0, 1, 4, 6], [3, 5, 2])

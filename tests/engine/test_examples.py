"""Which test pictures are kept for the page."""

import torch

from safecl.engine.evaluate import Answers
from safecl.engine.examples import APART, confused, disputed


def test_mistakes_of_confused_pairs_are_kept_by_frequency() -> None:
    targets = torch.tensor([0, 0, 0, 1, 1, 2, 2])
    said = torch.tensor([1, 1, 0, 1, 2, 2, 0])
    answers = Answers([], list("abc"), targets, {"only": said})
    assert confused(answers) == [0, 1, 4, 6]


def test_what_a_methods_learners_dispute_is_kept_from_all_over_the_pictures() -> None:
    slow = torch.tensor([0, 1, 2, 0])
    fast = torch.tensor([0, 2, 2, 1])
    few = Answers([], list("abc"), slow, {"slow": slow, "fast": fast, "safe": fast})
    assert disputed(few) == [1, 3]
    many = Answers(
        [], list("ab"), torch.zeros(100), {"slow": torch.zeros(100), "fast": torch.ones(100)}
    )
    found = disputed(many)
    assert APART >= len(found) > APART / 2 and found[0] == 0 and found[-1] > 80
    assert disputed(Answers([], list("ab"), torch.zeros(9), {"only": torch.ones(9)})) == []

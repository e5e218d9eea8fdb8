"""Tables with a row per picture."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from safecl.classifier.modelfile.rows import below, edited, restored

CLASSES = st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 4)), min_size=1, max_size=12)


def table(classes: list[int]) -> dict[str, torch.Tensor]:
    count = len(classes)
    return {
        "classes": torch.tensor(classes),
        "marks": torch.arange(count),
        "features": torch.arange(3.0 * count).view(count, 3).half(),
    }


@given(CLASSES, st.integers(0, 3))
def test_an_edit_is_taken_back_to_the_bit_also_after_rows_were_appended(
    pairs: list[tuple[int, int]], more: int
) -> None:
    before = table([was for was, _ in pairs])
    after, undone = edited(before, "classes", torch.tensor([now for _, now in pairs]))
    if undone:
        after = {
            name: torch.cat([rows, rows.new_zeros(more, *rows.shape[1:])])
            for name, rows in after.items()
        }
    back = restored(after, "classes", undone)
    assert back.keys() == before.keys()
    for name, rows in before.items():
        assert torch.equal(back[name], rows) and back[name].dtype == rows.dtype


@given(CLASSES)
def test_rows_of_no_class_leave_and_the_others_have_the_new_one(
    pairs: list[tuple[int, int]],
) -> None:
    after, _ = edited(
        table([was for was, _ in pairs]), "classes", torch.tensor([n for _, n in pairs])
    )
    stay = [i for i, (_, now) in enumerate(pairs) if now >= 0]
    assert after["marks"].tolist() == stay
    assert after["classes"].tolist() == [pairs[i][1] for i in stay]


def test_what_changes_nothing_needs_nothing_to_come_back() -> None:
    before = table([0, 1, 1])
    after, undone = edited(before, "classes", torch.tensor([0, 1, 1]))
    assert after is before and undone == {} and restored(after, "classes", undone) is after


def test_tensors_of_one_prefix_lose_it() -> None:
    one, other = torch.zeros(1), torch.ones(1)
    assert below({"seen/marks": one, "kept/marks": other}, "seen/") == {"marks": one}

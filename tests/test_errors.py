"""The sentence for a name that nobody knows."""

from safecl.errors import unknown


def test_the_nearest_name_is_suggested() -> None:
    assert str(unknown("pet", "sff", ["adapter", "ssf"])) == "There is no pet 'sff'; did you mean 'ssf'?"


def test_where_nothing_is_near_the_choice_is_shown() -> None:
    assert str(unknown("pet", "xyzzy", ["ssf", "adapter"])) == "There is no pet 'xyzzy'; choose one of: adapter, ssf."


def test_a_long_list_is_cut() -> None:
    text = str(unknown("model", "xyzzy", [f"name{i}" for i in range(1000)]))
    assert len(text) < 250 and text.endswith("…")

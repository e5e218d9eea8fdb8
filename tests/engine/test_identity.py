"""Whether two runs are the same one."""

import copy
from typing import Any

import pytest

from safecl.engine.identity import FREE, deciding, difference, digest

RUN = {
    "settings": {"seed": 0, "train.lr": 0.1},
    "backbone": {"name": "tiny", "size": 16, "weights": "abc"},
    "protocol": "class",
    "views": {"margin": 1.0},
    "sessions": [
        {
            "name": "first",
            "classes": ["a", "b"],
            **{part: {"pictures": 4, "digest": part} for part in ("train", "validation", "test")},
        }
    ],
}


def changed(*place: str | int, to: Any) -> dict[str, Any]:
    now = copy.deepcopy(RUN)
    inside: Any = now
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = to
    return now


def test_a_run_is_itself() -> None:
    assert difference(RUN, copy.deepcopy(RUN)) is None


@pytest.mark.parametrize(
    ("place", "to", "begins"),
    [
        (("settings", "seed"), 3, "other settings: seed=0 (now 3)"),
        (("settings", "clip"), 1, "other settings: clip=None (now 1)"),
        (("backbone", "name"), "small", "another backbone than small"),
        (("backbone", "size"), 32, "another size of tiny"),
        (("backbone", "weights"), "abd", "other weights of tiny"),
        (("views", "margin"), 1.2, "other views of the pictures"),
        (("protocol",), "domain", "a stream of the protocol class, not domain"),
        (("sessions", 0, "classes"), ["b", "a"], "other data: session 1 had the classes a, b"),
        (("sessions", 0, "classes"), ["a"], "other data: the class b is gone"),
        (("sessions", 0, "train", "pictures"), 5, "other data: session 1 had 4 training"),
        (("sessions", 0, "test", "digest"), "x", "other data: test pictures of session 1 have"),
        (("sessions", 0, "name"), "second", "other data: session 1 was 'first'"),
        (("sessions",), RUN["sessions"] * 2, "other data: 1 sessions, and now there are 2"),
    ],
)
def test_whatever_differs_is_named_from_both_sides(
    place: tuple[str | int, ...], to: Any, begins: str
) -> None:
    now = changed(*place, to=to)
    assert (difference(RUN, now) or "").startswith(begins)
    assert difference(now, RUN) is not None


def test_what_no_result_depends_on_is_not_part_of_a_run() -> None:
    settings = {"device": "cuda", "seed": 1, "train": {"lr": 0.1, "save_seconds": 9}}
    assert deciding(settings) == {"seed": 1, "train.lr": 0.1}
    assert {"device", "train.save_seconds"} <= FREE


def test_a_digest_goes_by_what_is_said_and_not_by_its_order() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 3})

"""Every error has a code, and one table holds the sentences."""

import ast
import pickle
import re
import string
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from safecl.errors import SafeclError, Settable, UnknownName, unknown
from safecl.sentences import SENTENCES

SOURCE = Path(__file__).parents[1] / "src" / "safecl"
CODE = re.compile(r"[a-z-]+(\.[a-z-]+)+")
# Where the code stands in the call, by the kind of error.
KINDS = {
    "SafeclError": 0,
    "Settable": 0,
    "Busy": 0,
    "NotCorrectable": 0,
    "Replaced": 0,
    "NothingLearned": 0,
    "Refused": 1,  # after the status
}
TABLES = [file for file in (SOURCE / "sentences").glob("*.py") if file.stem != "__init__"]
ENDS = {  # fields that hold the end of their sentence
    "fetch",
    "hint",
    "known",
    "lines",
    "notes",
    "sentence",
    "way",
    "why",
}
CLAUSES = {"reproduce.probe.no-test"}  # said inside another sentence
LISTS = {"sweep.folder.other-runs", "sweep.plan.wrong", "reproduce.needs"}  # line by line
TWO = {"correct.moved-on", "export.timm.beside", "model.settings.unreadable", "state.none-left"}


class Raised(NamedTuple):
    """A place where an error is made: its code (none: a plain sentence) and the fields it gives."""

    file: str
    line: int
    code: str | None
    fields: frozenset[str]


def places() -> Iterator[Raised]:
    for path in sorted(SOURCE.rglob("*.py")):
        file = path.relative_to(SOURCE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            kind = ast.unparse(node.func)
            if kind not in KINDS and kind != "super().__init__":
                continue
            given = node.args[KINDS.get(kind, 0)]
            for one in (given.body, given.orelse) if isinstance(given, ast.IfExp) else (given,):
                code = one.value if isinstance(one, ast.Constant) else None
                coded = isinstance(code, str) and CODE.fullmatch(code) is not None
                if coded or kind in KINDS:
                    fields = frozenset(word.arg for word in node.keywords if word.arg)
                    splat = any(word.arg is None for word in node.keywords)
                    named = str(code) if coded else None
                    yield Raised(file, node.lineno, named, frozenset({"*"}) if splat else fields)


EVERY = [place for place in places() if place.file != "errors.py"]


def fields_of(sentence: str) -> set[str]:
    return {name for _, name, *_ in string.Formatter().parse(sentence) if name}


def test_every_code_has_a_sentence_with_the_fields_that_are_given() -> None:
    for place in EVERY:
        if place.code is not None:
            assert place.code in SENTENCES, place
            if "*" not in place.fields:
                assert fields_of(SENTENCES[place.code]) == place.fields, place


def test_every_sentence_is_that_of_an_error() -> None:
    raised = {place.code for place in EVERY if place.code}
    bare = {code for code in SENTENCES if code.removesuffix(".bare") in raised}
    in_errors = {"name.unknown", "name.unknown.near", "package.not-installed"}
    of_others = {"package.says"}  # raised by packages that extend safecl
    own = [import_module(f"safecl.sentences.{file.stem}") for file in TABLES]
    assert sum(len(table.TABLE) for table in own) == len(SENTENCES), "a code is in two tables"
    assert set(SENTENCES) == raised | bare | in_errors | of_others


class Typical(string.Formatter):
    """A number or a word for each field, as its place in the sentence needs it."""

    def get_value(self, key: int | str, args: Any, kwargs: Any) -> Any:
        return f"its {key}." if key in ENDS else Typed(f"its {key}")


class Typed(str):
    """A word; a number where it is formatted as one."""

    def __format__(self, form: str) -> str:
        return format(3, form) if form and form[-1] in "fg," else format(str(self), form)


@pytest.mark.parametrize(("code", "sentence"), SENTENCES.items(), ids=SENTENCES)
def test_a_sentence_says_what_is_wrong_and_where_and_ends(code: str, sentence: str) -> None:
    assert CODE.fullmatch(code)
    said = Typical().vformat(sentence, (), {})
    names = fields_of(sentence)
    own = re.sub(r"\{[^{}]*\}", "", sentence).split()
    assert len(own) >= 3 or names & ENDS, "it says nothing of its own"
    if code in CLAUSES:
        return
    assert not re.match(r"(?!safecl |trust )[a-z]+ ", sentence), "it begins with a small letter"
    assert said.endswith((".", "?")), said
    assert said.count("\n") == 0 or code in LISTS
    assert len(re.findall(r"[.?] [A-Z]", said)) <= (code in TWO), said
    for word in ("Traceback", "Error:", "Exception", "None", "<class", "\t"):
        assert word not in said, said


def test_every_error_names_its_code_where_it_is_made() -> None:
    assert [place for place in EVERY if place.code is None] == []


def test_an_error_says_its_sentence_and_tells_its_code_and_fields() -> None:
    error = SafeclError("backbone.weights.missing", file=Path("w.safetensors"))
    assert str(error) == (
        "The weight file w.safetensors does not exist; give backbone.weights an existing file."
    )
    assert (error.code, error.fields) == (
        "backbone.weights.missing",
        {"file": Path("w.safetensors")},
    )
    assert error.exit_code == 2


def test_an_error_crosses_to_another_process_as_it_is() -> None:
    errors: list[Any] = [
        SafeclError("config.missing", source="a.yaml"),
        Settable("setting.idle", key="a", other="b", value=1, setting="b=2"),
        unknown("pet", "sff", ["ssf"]),
        SafeclError("package.says", sentence="A sentence of its own."),
    ]
    for error in errors:
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert (str(again), again.code, again.fields) == (str(error), error.code, error.fields)


def test_a_remedy_is_said_as_the_command_takes_it() -> None:
    error = Settable("setting.idle", key="a", other="b", value="1", setting="b=2")
    assert str(error) == "a means nothing with b=1; omit it, or give b=2."
    assert str(error.at("--set")) == "a means nothing with b=1; omit it, or give --set b=2."
    assert str(error.at(None)) == "a means nothing with b=1; omit it."


def test_the_nearest_name_is_suggested() -> None:
    error = unknown("pet", "sff", ["adapter", "ssf"])
    assert str(error) == "There is no pet 'sff'; did you mean 'ssf'?"
    assert isinstance(error, UnknownName) and error.near == "ssf"
    assert error.code == "name.unknown.near"


def test_where_nothing_is_near_the_choice_is_shown() -> None:
    error = unknown("pet", "xyzzy", ["ssf", "adapter"])
    assert str(error) == "There is no pet 'xyzzy'; choose one of: adapter, ssf."
    assert (error.code, error.near) == ("name.unknown", None)


def test_a_long_list_is_cut() -> None:
    text = str(unknown("model", "xyzzy", [f"name{i}" for i in range(1000)]))
    assert len(text) < 250 and text.endswith("…")

"""Every setting that a document or a message names exists."""

import ast
import inspect
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import safecl
from safecl.backbone.backbone import Backbone
from safecl.backbone.view import Inserted
from safecl.configure.sentences import keys
from safecl.experiments.config import RunSettings
from safecl.methods.method import Fit, Method, Recipe
from safecl.sentences import SENTENCES
from safecl.streams import settings as stream_settings
from safecl.streams.collection import make_stream
from safecl.streams.stream import Stream

ROOT = Path(__file__).parents[1]
TOP = ("README", "CONTRIBUTING", "CHANGELOG")
DOCUMENTS = [*(ROOT / f"{name}.md" for name in TOP), *sorted((ROOT / "docs").glob("*.md"))]
SOURCES = sorted((ROOT / "src" / "safecl").rglob("*.py"))
KEYS = set(keys(RunSettings))
GROUPS = {key.partition(".")[0] for key in KEYS if "." in key}
# Calls whose texts a user reads.
SPEAKING = {
    "SafeclError",
    "ValueError",
    "unknown",
    "warn",
    "Field",
    "Option",
    "Argument",
    "say",
    "echo",
    "print",
}
DOTTED = re.compile(
    rf"(?<![\w./-])((?:{'|'.join(sorted(GROUPS))})(?:\.[a-z_]+)+)\b(?<!\.py)(?!\.\w|/)"
)
# variables of examples, named as groups are
OBJECTS = {
    "stream": Stream,
    "backbone": Backbone,
    "method": Method,
}
FOREIGN = re.compile(r"\b(?:np|timm|service|httpx)\.\w+\((?:[^()]|\([^()]*\))*\)")
BARE = re.compile(r"(?<![\w.\-/\"'{}<])([a-z_]+)=(?![=\"'<>$])")


def python_arguments() -> set[str]:
    """Names of arguments of what the package offers and hands to a method, and the options of
    ``open_stream``.
    """
    functions = [
        getattr(safecl, name)
        for name in safecl.__all__
        if inspect.isfunction(getattr(safecl, name))
    ]
    functions += [make_stream, Fit.__call__, Recipe, Backbone.features]
    functions += [
        method for _, method in inspect.getmembers(safecl.ContinualClassifier, inspect.isfunction)
    ]
    found = {name for function in functions for name in inspect.signature(function).parameters}
    kinds = stream_settings.KINDS.values()
    return (
        found
        | {name for kind in kinds for name in kind.model_fields}
        | Inserted.__annotations__.keys()
    )


def wrong(
    text: str, arguments: Collection[str] = (), objects: Mapping[str, type] = {}
) -> Iterator[str]:
    """Names in ``text`` that look like settings and are none.

    ``arguments`` of Python may be named as well, and attributes of ``objects``, by the name of
    their variable.
    """
    for name in DOTTED.findall(text):
        group, attribute = name.split(".")[:2]
        if name not in KEYS and not (group in objects and attribute in attributes(objects[group])):
            yield name
    for name in BARE.findall(text):
        if name not in KEYS.union(arguments, ["key"]):  # key=value stands for any of them
            yield f"{name}="


def attributes(kind: type) -> set[str]:
    """What an object of a class has, with what the class only declares."""
    return {name for one in kind.__mro__ for name in inspect.get_annotations(one)}.union(dir(kind))


def test_settings_named_in_the_documents_exist() -> None:
    arguments = python_arguments()
    found = list[tuple[str, str]]()
    for path in DOCUMENTS:
        parts = re.findall(
            r"```.*?```|`[^`\n]+`", path.read_text(encoding="utf-8"), flags=re.DOTALL
        )
        found += [
            (path.name, name) for name in wrong("\n".join(map(as_read, parts)), arguments, OBJECTS)
        ]
    assert found == []


def as_read(code: str) -> str:
    """Code of a document without what cannot be a setting: of a Python file, only its texts are
    kept.

    What other libraries are called with is their own.
    """
    # one that begins with a docstring
    file = re.fullmatch(r"```python\n(\"\"\".*)```", code, flags=re.DOTALL)
    if not file:
        return FOREIGN.sub("", code)
    return "\n".join(text for node in ast.walk(ast.parse(file[1])) for text in texts(node))


def test_settings_named_in_messages_exist() -> None:
    trees = {path.name: ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert len(trees) > 100
    found = [
        (file, name)
        for file, tree in trees.items()
        for said in messages(tree)
        if said[0] not in SENTENCES
        for name in wrong(*said)
    ]
    assert found == []
    places = [re.sub(r"\{\w[^{}]*\}", "{…}", sentence) for sentence in SENTENCES.values()]
    assert [name for one in places for name in wrong(one, python_arguments())] == ["method.pilot"]


def messages(tree: ast.AST) -> Iterator[tuple[str, set[str]]]:
    """The texts inside of calls that speak to a user; what is computed in them is an ellipsis.

    With each, the arguments that it may name: those of the method of a public class that says it.
    """
    own = dict[ast.AST, set[str]]()
    for public in ast.walk(tree):
        if isinstance(public, ast.ClassDef) and public.name in safecl.__all__:
            for method in public.body:
                if isinstance(method, ast.FunctionDef):
                    names = {one.arg for one in (*method.args.args, *method.args.kwonlyargs)}
                    own |= dict.fromkeys(ast.walk(method), names)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = (
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        )
        if name in SPEAKING:
            for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                yield from ((text, own.get(node, set())) for text in texts(argument))


def texts(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.JoinedStr):
        yield "".join(
            part.value if isinstance(part, ast.Constant) else "{…}" for part in node.values
        )
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.BinOp | ast.IfExp | ast.BoolOp):
        for child in ast.iter_child_nodes(node):
            yield from texts(child)


def test_a_name_that_does_not_exist_is_found() -> None:
    assert list(
        wrong("set stream.shuffle=1, method.answer.gama=2, train.epochs=2 or pett=ssf")
    ) == [
        "stream.shuffle",
        "method.answer.gama",
        "pett=",
    ]
    said = "raise SafeclError(f'lower train.rate, or {x}; epochs=3')"
    for where in ("{}", "def load(epochs):\n {}", "class Mine:\n def load(self, epochs):\n  {}"):
        code = ast.parse(where.format(said))
        assert [name for text in messages(code) for name in wrong(*text)] == [
            "train.rate",
            "epochs=",
        ]
    public = ast.parse(f"class ContinualClassifier:\n def load(self, epochs):\n  {said}")
    assert [name for text in messages(public) for name in wrong(*text)] == ["train.rate"]
    assert list(
        wrong("stream.shuffle stream.classes method.outputs method.answers", (), OBJECTS)
    ) == [
        "stream.shuffle",
        "method.answers",
    ]
    assert as_read("`np.zeros((2, 3), dtype=int), pett=1`") == "`, pett=1`"

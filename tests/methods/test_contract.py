"""The promises that every method keeps. A method added to the catalogue is held to them without a
line here.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from PIL import Image
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.engine.checkpoint import load_state, save_state
from safecl.engine.facts import footprint
from safecl.engine.learn import learn
from safecl.engine.run import run
from safecl.engine.settings import TrainSettings
from safecl.errors import Stopped
from safecl.methods.catalog import method_class, method_settings
from safecl.methods.finetune import Finetune
from safecl.methods.method import Batch, Loss, Method, all_logits, restore
from safecl.pet.settings import PETS
from safecl.streams.pictures.images import Label, Pictures, Transform
from safecl.streams.stream import Part, SessionClosedError, Stream
from tests.conftest import raises

METHODS = method_settings()
Settings = dict[str, Any]
MakeStream = Callable[..., Stream]
# SAFE runs pilots on four classes or more
CLASSES = [
    ["a", "b", "g", "h"],
    ["c", "d", "e"],
    ["f"],
]
DOMAINS = [["a", "b", "c"]] * 3
MIXED = [["a", "b"], ["c", "a"], ["b", "d", "c"]]
# whose heads know a class before any training
IMPRINTING = (
    "safe",
    "ranpac",
    "loranpac",
    "joint",
    "finetune",
    "aper",
)
IMAGES = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(7))


PROTOCOLS = {"class": CLASSES, "domain": DOMAINS, "mixed": MIXED}


@dataclass
class Story:
    """What was seen of a method while it learned a stream; a list has an entry for each session."""

    settings: Settings
    sessions: list[list[str]]
    method: Method
    weights: dict[str, Tensor]  # of the backbone, before
    reads: list[set[str]] = field(default_factory=list)
    # the networks that each batch of training went through
    passes: list[list[int]] = field(default_factory=list)
    states: list[dict[str, Tensor]] = field(default_factory=list)
    classes: list[list[Label]] = field(default_factory=list)
    logits: list[dict[str, Tensor]] = field(default_factory=list)


class Spied(Pictures):
    """Pictures that note in a common diary that they were read."""

    def __init__(self, name: str, pictures: Pictures, diary: set[str]) -> None:
        self.name = name
        self.pictures = pictures
        self.diary = diary
        self.labels = pictures.labels

    def decode(self, index: int) -> Image.Image:
        self.diary.add(self.name)
        return self.pictures.decode(index)

    def plain(self, indices: Sequence[int], transform: Transform) -> Tensor:
        self.diary.add(self.name)
        return self.pictures.plain(indices, transform)

    def canvas(self, indices: Sequence[int], transform: Transform) -> tuple[Tensor, Tensor]:
        self.diary.add(self.name)
        return self.pictures.canvas(indices, transform)


def spied(stream: Stream, diary: set[str]) -> Stream:
    """The same stream, with every collection of pictures watched."""
    parts = [
        Part(
            part.name,
            part.classes,
            Spied(f"train {number}", part.train, diary),
            Spied(f"test {number}", part.test, diary),
        )
        for number, part in enumerate(stream._parts, 1)
    ]
    return Stream(stream.name, parts, stream.protocol, stream.transform)


def tell(
    settings: Settings,
    sessions: list[list[str]],
    backbone: Backbone,
    stream: Stream,
    folder: Path,
    tools: Any,
) -> Story:
    """Let a method learn a stream with checkpoints in ``folder``, and watch."""
    weights = {key: value.clone() for key, value in backbone.network.state_dict().items()}
    story = Story(settings, sessions, tools.new_method(backbone, settings), weights)
    diary: set[str] = set()
    passes: list[int] = []
    stream = spied(stream, diary)
    fit = tools.new_fit(story.method, stream, folder=folder)

    def around(loss: Loss) -> Loss:
        def cleared(batch: Batch) -> dict[str, Tensor]:
            passes.clear()
            terms = loss(batch)
            story.passes.append(list(passes))
            return terms

        return cleared

    def counted(self: Backbone, images: Tensor, view: Any, ask: Any) -> Tensor:
        passes.append(id(self.network if view is None else view))
        return through(self, images, view, ask)

    through = Backbone.through
    fit.around = around
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Backbone, "through", counted)
        for session in stream:
            diary.clear()
            learn(story.method, session, fit)
            story.reads.append(set(diary))
            story.states.append(tools.snapshot(story.method))
            story.classes.append(list(story.method.classes))
            with torch.no_grad():
                story.logits.append(all_logits(story.method, IMAGES))
    return story


STORIES: dict[tuple[str, str], Story] = {}


@pytest.fixture(scope="session")
def told(
    backbone: Backbone,
    make_stream: MakeStream,
    tmp_path_factory: pytest.TempPathFactory,
    tools: Any,
) -> Any:
    """``told(settings, protocol)``: each story is told once."""

    def tell_once(settings: Settings, protocol: str) -> Story:
        key = (repr(settings), protocol)
        if key not in STORIES:
            sessions = PROTOCOLS[protocol]
            folder = tmp_path_factory.mktemp("phases")
            STORIES[key] = tell(settings, sessions, backbone, make_stream(sessions), folder, tools)
        return STORIES[key]

    return tell_once


@pytest.fixture
def story(watched: tuple[Settings, str], told: Any) -> Story:
    return told(*watched)


@pytest.fixture
def class_story(variant: Settings, told: Any) -> Story:
    return told(variant, "class")


def test_every_method_says_what_it_is() -> None:
    assert {"safe", "ranpac", "finetune", "simplecil", "aper", "slca"} <= METHODS.keys()
    for name, settings in METHODS.items():
        method = method_class(settings)
        assert settings().name == name and settings.title and settings.paper
        assert method.outputs and len(set(method.outputs)) == len(method.outputs)


def test_the_contract_has_at_most_twelve_public_members() -> None:
    """Besides what every instance is given, and what any torch module has."""
    given = {"backbone", "settings", "seed", "classes", "sessions", "notes"}
    own = {name for name in {**vars(Method), **Method.__annotations__} if name[0] != "_"}
    members = own - given - set(dir(nn.Module))
    assert len(members) <= 12, sorted(members)


# -- what a method may see -------------------------------------------------------------------------


def test_only_the_current_sessions_training_pictures_are_read(story: Story) -> None:
    assert story.reads == [{f"train {number}"} for number in range(1, len(story.reads) + 1)]


class Hoarder(Finetune):
    """A method that breaks the contract: it keeps the first session and trains on it later."""

    kept: Any = None
    kept_part: Any = None
    trick: str = ""

    def learn(self, session: Any, fit: Any) -> None:
        if self.kept is None:
            self.kept = session
            self.kept_part = session.part(session.classes[:1])
            super().learn(session, fit)
            if self.trick == "part":
                fit("once more", self.head, self.kept_part, partial(self.loss, None))
            return
        if self.trick == "fit":
            fit("again", self.head, self.kept, partial(self.loss, None))
        elif self.trick == "part":
            fit("again", self.head, self.kept_part, partial(self.loss, None))
        elif self.trick == "features":
            fit.features(self.kept, self.learner)
        else:
            self.kept.train.plain([0], fit.transform)


@pytest.mark.parametrize("trick", ["fit", "part", "features", "pictures"])
def test_a_method_that_hoards_a_session_is_found_out(
    trick: str, backbone: Backbone, make_stream: MakeStream, tools: Any
) -> None:
    method = Hoarder(backbone, METHODS["finetune"]())
    stream = make_stream(CLASSES)  # type: ignore[arg-type]
    method.trick = trick
    with pytest.raises(SessionClosedError, match=r"Session 1 .* is over"):
        tools.teach(method, stream)
    assert len(method.classes) == 7  # in the second session, and not before


def test_what_is_kept_does_not_grow_with_the_number_of_pictures(
    class_story: Story, backbone: Backbone, make_stream: MakeStream, tools: Any
) -> None:
    settings = dict(class_story.settings)
    read = class_story.states[1].get("ridge_slow.chosen")
    if read is not None:  # fewer pictures may ask for less of each
        layers, patches, mirror, *_ = read.tolist()
        own = settings.get("ridge", tools.ridge)
        settings["ridge"] = own.model_copy(
            update={"layers": layers, "patches": bool(patches), "mirror": bool(mirror)}
        )
    method = tools.new_method(backbone, settings)
    tools.teach(method, make_stream(CLASSES, train=4), last=2)
    states = (method.state_dict(), class_story.states[1])
    found, expected = ({key: value.shape for key, value in state.items()} for state in states)
    assert found == expected


def test_the_number_of_classes_is_never_asked_for_and_labels_are_the_users_own(
    variant: Settings, backbone: Backbone, make_stream: MakeStream, tools: Any
) -> None:
    sessions: list[list[str | int]] = [["Hund", 7], [-3], ["", "7", "naïve\n"], [10**12, 0]]
    method = tools.new_method(backbone, variant)
    seen: list[str | int] = []
    for number, labels in enumerate(sessions, 1):
        # A stream of its own for each step: nothing in it knows what will come.
        stream = make_stream([*[["never read"]] * (number - 1), labels], train=2)
        tools.teach(method, stream, first=number, last=number)
        seen += labels
        assert method.classes == seen
    shapes = {name: z.shape for name, z in all_logits(method, IMAGES).items()}
    assert shapes == dict.fromkeys(method.outputs, (len(IMAGES), len(seen)))


@pytest.mark.parametrize("name", METHODS)
def test_no_result_depends_on_a_test_label(
    name: str, backbone: Backbone, make_stream: MakeStream, tmp_path: Path, tools: Any
) -> None:
    states = []
    accuracies = []
    for shuffled in (False, True):
        stream = make_stream(MIXED[:2])
        if shuffled:
            for part in stream._parts:
                part.test.labels = ["never seen"] * len(part.test.labels)
        method = tools.new_method(backbone, {"name": name})
        folder = tmp_path / str(shuffled)
        train = TrainSettings(epochs=1, batch_size=4)
        summary = run(method, stream, folder, accelerator=Accelerator(cpu=True), train=train)
        states.append(tools.snapshot(method))
        accuracies.append(summary["final"][method.outputs[-1]])
    assert tools.same(*states)
    assert accuracies[1] == 0 < accuracies[0]  # the labels did reach the evaluation


# -- what a method gives ---------------------------------------------------------------------------


def test_logits_cover_the_classes_seen_in_every_protocol(story: Story) -> None:
    seen: list[str] = []
    for number, labels in enumerate(story.sessions):
        seen += [label for label in labels if label not in seen]
        assert story.classes[number] == seen
        assert tuple(story.logits[number]) == story.method.outputs
        for logits in story.logits[number].values():
            assert logits.shape == (len(IMAGES), len(seen)) and logits.isfinite().all()
    assert torch.equal(story.method.logits(IMAGES), story.logits[-1][story.method.outputs[-1]])


def test_a_picture_gets_the_same_logits_in_any_company(class_story: Story) -> None:
    alone = torch.cat([class_story.method.logits(image[None]) for image in IMAGES])
    assert torch.allclose(class_story.method.logits(IMAGES), alone, atol=1e-4)


def test_what_was_learned_is_known_at_once(
    variant: Settings, backbone: Backbone, make_stream: MakeStream, tools: Any
) -> None:
    """Not a benchmark: on pictures this easy, a method that learns at all is far above chance (1 of
    3).
    """
    stream = make_stream([["a", "b", "c"]], train=6, test=12)
    method = tools.new_method(backbone, variant, seed=1)
    imprints = variant["name"] in IMPRINTING and variant.get("head") != "linear"
    epochs = 1 if imprints or not METHODS[variant["name"]].trains else 12
    train = TrainSettings(epochs=epochs, batch_size=6, lr=0.05)
    tools.teach(method, stream, fit=tools.new_fit(method, stream, train, seed=1))
    test = stream.test(1)
    guesses = method.logits(test.plain(range(len(test)), stream.transform).float() / 255).argmax(
        dim=1
    )
    right = sum(
        method.classes[int(guess)] == label
        for guess, label in zip(guesses, test.labels, strict=True)
    )
    assert right / len(test) > 0.6


def test_one_forward_pass_a_batch_for_each_network(story: Story) -> None:
    trains = story.method.settings.trains
    # a phase may train on features alone
    assert bool(story.passes) is trains and (any(story.passes) or not trains)
    assert all(len(batch) == len(set(batch)) for batch in story.passes)


def test_the_backbone_is_left_as_it_was(story: Story, tools: Any) -> None:
    backbone = story.method.backbone
    assert tools.same(story.weights, backbone.network.state_dict())
    own = {value.data_ptr() for value in backbone.network.state_dict().values()}
    assert not own & {value.data_ptr() for value in story.method.state_dict().values()}


# -- what is kept ----------------------------------------------------------------------------------


def carry_on(story: Story, number: int, pet: str, stream: Stream, file: Path, tools: Any) -> Method:
    """Save the state after session ``number``, restore it elsewhere, and learn the rest there."""
    save_state(file, story.states[number - 1], {"classes": story.classes[number - 1]})
    state, facts = load_state(file)
    twin: Method = tools.new_method(story.method.backbone, story.settings, pet)
    restore(twin, state, facts["classes"])
    assert twin.classes == story.classes[number - 1]
    assert tools.same(tools.snapshot(twin), story.states[number - 1])
    with torch.no_grad():
        for output, logits in all_logits(twin, IMAGES).items():
            assert torch.equal(logits, story.logits[number - 1][output])
    tools.teach(twin, stream, first=number + 1)
    return twin


def test_a_saved_method_answers_and_goes_on_as_if_it_had_never_been_saved(
    story: Story, make_stream: MakeStream, tmp_path: Path, tools: Any
) -> None:
    for number in (1, 2):
        file = tmp_path / f"{number}.safetensors"
        twin = carry_on(story, number, "adapter", make_stream(story.sessions), file, tools)
        assert tools.same(tools.snapshot(twin), story.states[-1])
        assert torch.equal(twin.logits(IMAGES), story.method.logits(IMAGES))


@pytest.mark.parametrize(("number", "questions"), [(1, 5), (2, 2)])
@pytest.mark.parametrize("name", METHODS)
def test_a_session_that_was_stopped_anywhere_goes_on_to_the_same_state(
    name: str,
    number: int,
    questions: int,
    backbone: Backbone,
    make_stream: MakeStream,
    told: Any,
    tmp_path: Path,
    tools: Any,
) -> None:
    """Between two steps, two phases or two batches of features: wherever a stop is asked for the
    n-th time.
    """
    story = told({"name": name}, "class")
    twins = [tools.new_method(backbone, {"name": name}) for _ in range(2)]
    for twin, stopped in zip(twins, (True, False), strict=True):
        stream = make_stream(CLASSES)
        if number > 1:
            restore(
                twin,
                {key: value.clone() for key, value in story.states[0].items()},
                story.classes[0],
            )
        fit = tools.new_fit(twin, stream, folder=tmp_path)
        asked = iter(range(10**6))
        fit.stop = (lambda asked=asked: next(asked) >= questions) if stopped else (lambda: False)
        with contextlib.suppress(Stopped):
            tools.teach(twin, stream, first=number, last=number, fit=fit)
    assert tools.same(tools.snapshot(twins[1]), story.states[number - 1])


OTHERS = [kind for kind in PETS if kind != "adapter"]
TUNED = [name for name, settings in METHODS.items() if "pet" in settings.model_fields]
# Every PET with SAFE, and every other method with one; the rest is slow.
OFTEN = {("safe", pet) for pet in OTHERS} | {
    (name, OTHERS[i % len(OTHERS)]) for i, name in enumerate(TUNED)
}


@pytest.mark.parametrize(
    ("name", "pet"),
    [
        pytest.param(name, pet, marks=() if (name, pet) in OFTEN else pytest.mark.slow)
        for name in TUNED
        for pet in OTHERS
    ],
)
def test_a_saved_method_goes_on_whatever_its_pet(
    name: str, pet: str, backbone: Backbone, make_stream: MakeStream, tmp_path: Path, tools: Any
) -> None:
    method = tools.new_method(backbone, {"name": name}, pet)
    tools.teach(method, make_stream(MIXED), last=2)
    save_state(tmp_path / "state", method.state_dict(), {})
    twin = tools.new_method(backbone, {"name": name}, pet)
    restore(twin, load_state(tmp_path / "state")[0], method.classes)
    for each in (method, twin):
        tools.teach(each, make_stream(MIXED), first=3)
    assert tools.same(tools.snapshot(method), tools.snapshot(twin))
    assert torch.equal(method.logits(IMAGES), twin.logits(IMAGES))


@pytest.mark.parametrize("name", [name for name, settings in METHODS.items() if settings.trains])
def test_killed_inside_a_phase_it_goes_on_as_if_nothing_had_happened(
    name: str, backbone: Backbone, make_stream: MakeStream, tmp_path: Path, tools: Any
) -> None:
    # a checkpoint after every step
    train = TrainSettings(epochs=2, batch_size=4, lr=0.05, save_seconds=1e-9)
    losses = 0
    deadly: set[int] = set()

    def around(loss: Loss) -> Loss:
        def counted(batch: Batch) -> dict[str, Tensor]:
            nonlocal losses
            losses += 1
            if losses in deadly:
                deadly.remove(losses)
                raise KeyboardInterrupt
            return loss(batch)

        return counted

    def go_on(folder: Path) -> dict[str, Tensor]:
        """From where the folder has it; a session that is over is learned again, from its phases'
        checkpoints.
        """
        folder.mkdir(exist_ok=True)
        method = tools.new_method(backbone, {"name": name})
        stream = make_stream(MIXED[:2])
        fit = tools.new_fit(method, stream, train, folder=folder)
        fit.around = around
        tools.teach(method, stream, fit=fit)
        return tools.snapshot(method)

    expected = go_on(tmp_path / "straight")
    steps = losses
    kills = sorted({1 + int(part * steps) for part in (0.3, 0.8)})
    for kill in kills:
        losses = 0
        deadly = {kill}
        folder = tmp_path / str(kill)
        with pytest.raises(KeyboardInterrupt):
            go_on(folder)
        assert tools.same(go_on(folder), expected), f"killed at step {kill} of {steps}"


@pytest.mark.parametrize("name", METHODS)
def test_the_same_seed_gives_the_same_method_and_another_one_another(
    name: str, backbone: Backbone, make_stream: MakeStream, told: Any, tools: Any
) -> None:
    expected = told({"name": name}, "class").states[1]
    torch.manual_seed(12345)  # the global generator is nobody's business
    for seed in (0, 1):
        method = tools.new_method(backbone, {"name": name}, seed=seed)
        stream = make_stream(CLASSES)
        tools.teach(method, stream, last=2, fit=tools.new_fit(method, stream, seed=seed))
        assert tools.same(tools.snapshot(method), expected) is (
            seed == 0 or not METHODS[name].trains
        )


def test_the_facts_are_those_of_the_state(class_story: Story) -> None:
    method = class_story.method
    facts = footprint(method)
    assert facts["learnable"] == sum(p.numel() for p in method.parameters())
    distinct = {value.data_ptr(): value.nbytes for value in method.state_dict().values()}
    assert facts["bytes_kept"] == sum(distinct.values())


# -- state that grows ------------------------------------------------------------------------------


class Stack(nn.ModuleList):
    """A head a session; one that is given a state makes room for as many as are in it."""

    def grow(self, width: int) -> None:
        self.append(nn.Linear(width, 1))

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *arguments: Any
    ) -> None:
        wanted = {
            key.removeprefix(prefix).split(".")[0]: value
            for key, value in state_dict.items()
            if key.startswith(prefix)
        }
        for index in range(len(self), len(wanted)):
            self.grow(int(wanted[str(index)].shape[-1]) if wanted[str(index)].ndim == 2 else 24)
        super()._load_from_state_dict(state_dict, prefix, *arguments)


class Growing(Finetune):
    """A method whose state has new names after every session."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.stack = Stack()

    def learn(self, session: Any, fit: Any) -> None:
        super().learn(session, fit)
        self.stack.grow(24)


def test_a_state_with_new_names_is_this_runs_own_and_not_another_one(
    backbone: Backbone, make_stream: MakeStream, tmp_path: Path
) -> None:
    def go(folder: Path, sessions: list[list[str]]) -> Method:
        method = Growing(backbone, METHODS["finetune"]())  # type: ignore[arg-type]
        train = TrainSettings(epochs=1, batch_size=4)
        run(method, make_stream(sessions), folder, accelerator=Accelerator(cpu=True), train=train)
        return method

    straight = go(tmp_path / "straight", CLASSES)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Growing, "learn", interrupted(Growing.learn, 3))
        go(tmp_path / "stopped", CLASSES)
    resumed = go(tmp_path / "stopped", CLASSES)
    assert len(resumed.stack) == 3  # type: ignore[arg-type]
    assert resumed.state_dict().keys() == straight.state_dict().keys()
    assert torch.equal(resumed.logits(IMAGES), straight.logits(IMAGES))


def interrupted(learn_session: Any, at: int) -> Any:
    """``learn`` that is stopped at the start of session ``at``."""

    def stopped(self: Any, session: Any, fit: Any) -> None:
        if session.number == at:
            raise KeyboardInterrupt
        learn_session(self, session, fit)

    return stopped


def test_a_state_that_does_not_fit_is_refused_in_one_sentence(backbone: Backbone) -> None:
    method = Finetune(backbone, METHODS["finetune"]())  # type: ignore[arg-type]
    for state in ({}, {"nothing.of.this": torch.zeros(2)}):
        with raises("state.other-method", title="Fine-tuning"):
            restore(method, state, ["a"])

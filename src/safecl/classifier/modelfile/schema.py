"""The header of a model file, defined once: its parts, their types and bounds. docs/format.md is
made from it.

To add a field, add it here, with a default unless FORMAT is raised as well; to add a kind of step,
add a class and name it in ``Entry``. What is written is checked as what is read is. Nothing heavy
is imported.
"""

import json
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    model_validator,
)

from safecl.classifier.settings import resolve
from safecl.errors import SafeclError
from safecl.lines import shown
from safecl.methods.earlier import settings_of_today
from safecl.settings import flatten
from safecl.streams.labels import MAX_CLASSES, Label, check_name, label_problems

FORMAT = 7
MAX_HEADER = 1 << 26  # bytes
MAX_STEPS = 10_000  # of the history, and sessions that can be rolled back
MAX_SETTING = 10_000_000  # the largest number in the settings, but for the seed
# the largest whole number of a method: a Gram matrix of that many rows has 17 GB
MAX_ROWS = 1 << 16
PREDICT, LEARN, RECORDS, KEPT = (
    f"{name}.safetensors" for name in ("predict", "learn", "records", "kept")
)
THUMBNAILS = "thumbnails.json"
Header: TypeAlias = dict[str, Any]


def _named(label: Label) -> Label:
    try:
        check_name(label)
    except SafeclError as error:
        raise ValueError(str(error)) from None
    return label


# The titles stand for the types in docs/format.md.
Class = Annotated[str | int, AfterValidator(_named), Field(title="class")]
Count = Annotated[int, Field(title="count", ge=0, le=1 << 53)]
# a whole one has 64 bits, as torch needs
Number = Annotated[float, Field(title="number", ge=-1e15, le=1e15)]
Look = Annotated[list[Number], Field(title="number", max_length=6)]
Share = Annotated[float, Field(title="share", ge=0, le=1.000001)]  # a mean may be rounded up
Aspect = Annotated[float, Field(title="aspect", ge=0.01, le=100)]
Temperature = Annotated[float, Field(title="temperature", ge=1e-3, le=1e3)]
Size = Annotated[int, Field(title="size", ge=1, le=8192)]
Hex = Annotated[str, Field(title="digest", pattern="^[0-9a-f]{32}$")]
Session = Annotated[str, Field(title="id", pattern="^[0-9a-f]{12}$")]
# of a tensor or a module
Key = Annotated[str, Field(title="key", max_length=300, pattern=r"^[A-Za-z0-9_./-]+$")]
Version = Annotated[str, Field(title="version", max_length=64, pattern=r"^[A-Za-z0-9_.+!-]+$")]
Date = Annotated[
    str, Field(title="date", pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}[+]00:00$")
]
Text = Annotated[str, Field(title="text", max_length=4096)]
# 64 bits of a picture's digest
Mark = Annotated[int, Field(title="hash", ge=-(1 << 63), lt=1 << 63)]


class Part(BaseModel):
    """Strict about names and types; every number is finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Member(Part):
    """A member of the zip."""

    size: Count = Field(description="bytes")
    digest: Hex = Field(description="BLAKE2b of its bytes, 16 bytes long")


class Backbone(Part):
    """The frozen network, whose weights are not in the file."""

    name: Text = Field(description="as timm has it")
    size: Size = Field(description="side of its input, pixels")
    weights: Hex = Field(description="BLAKE2b of its weights")
    file: Text | None = Field(description="the weight file it was read from, if one was given")
    licence: Text = Field("not stated", description="of its weights")
    mean: tuple[Number, Number, Number] | None = Field(
        None, description="by colour, what is subtracted from pixels in [0, 1]"
    )
    std: tuple[Number, Number, Number] | None = Field(
        None, description="by colour, what they are then divided by"
    )


class Candidate(Part):
    """A backbone that was asked."""

    name: Text = Field(description="as timm has it")
    file: Text | None = Field(description="the weight file it was read from, if one was given")
    size: Size = Field(description="side of its input, pixels")
    error: Number = Field(description="mean squared leave-one-out error of a ridge head on it")
    seconds: Number = Field(description="per 100 pictures")


class Choice(Part):
    """Why it is this backbone, where the first pictures have chosen it."""

    backbone: Text = Field(description="what was asked for: auto, or auto:A,B")
    prefer: Literal["accuracy", "speed"] = Field(description="what the choice went by")
    pictures: Count = Field(description="pictures that it went by")
    candidates: list[Candidate] = Field(
        min_length=1, max_length=1000, description="the chosen one first"
    )


class Crop(Part):
    """How a picture becomes an input; ``scale``, ``ratio`` and ``flip`` matter to training
    alone.
    """

    size: Size = Field(description="side, pixels")
    margin: float = Field(
        ge=0.1, le=10, description="the shorter side is resized to size × margin, then cropped"
    )
    scale: tuple[Share, Share] = Field(description="area of a random crop, least and most")
    ratio: tuple[Aspect, Aspect] = Field(description="aspect of a random crop, least and most")
    flip: Share = Field(description="probability of a horizontal flip")


class Calibration(Part):
    """What probabilities and the answer unknown rest on."""

    temperature: Temperature | None = Field(
        description="logits are divided by it; null with too few pictures"
    )
    slope: Number = Field(description="of the correction of the largest probability")
    offset: Number = Field(description="of the same correction")
    error: Share | None = Field(description="expected calibration error")
    bins: list[tuple[Share, Share, Count]] = Field(
        max_length=100, description="mean confidence, accuracy and pictures of each bin"
    )
    accuracy: Share = Field(
        description="accuracy on new pictures, as leaving learned ones out tells it"
    )
    interval: tuple[Share, Share] = Field(description="95 % interval of the accuracy")
    classes: list[tuple[Count, Count, Count]] = Field(
        max_length=MAX_CLASSES,
        description="of each class: pictures left out, correct ones, and with half as many",
    )
    confused: list[tuple[Count, Count, Count]] = Field(
        max_length=1000,
        description="places of a class and of the answer to its pictures, and how many of them",
    )
    scales: tuple[tuple[Number, Number], tuple[Number, Number]] | None = Field(
        description=(
            "middle and spread of the energy of the logits and of the likeness; null: the largest"
            " logit is the score"
        )
    )
    weights: tuple[Number, Number] | None = Field(
        None,
        description=(
            "of both in the score; null: a smooth minimum, of the largest logit in place of the"
            " energy"
        ),
    )
    scores: list[list[Number]] = Field(
        max_length=MAX_CLASSES,
        description="of each answer: how known its pictures look, in ascending order",
    )
    looks: list[list[Look]] | None = Field(
        None,
        max_length=MAX_CLASSES,
        description=(
            "of each answer: light, contrast, sharpness, warmth, tint and colour of its pictures,"
            " in the order of their scores, or nothing where nobody knows; null: none is known"
        ),
    )
    strangers: tuple[Count, Count] | None = Field(
        None,
        description=(
            "of pictures of classes that were left out wholly: those called unknown at 5 %, and"
            " all; null: none could be"
        ),
    )
    own: list[list[Share]] | None = Field(
        None,
        max_length=MAX_CLASSES,
        description=(
            "of each class: its probabilities for its own pictures, in ascending order; null: no"
            " sets"
        ),
    )
    pictures: Count = Field(description="pictures that were left out")

    @model_validator(mode="after")
    def _in_order(self) -> "Calibration":
        if any(rows != sorted(rows) for rows in [*self.scores, *(self.own or ())]):
            raise ValueError("scores are not in ascending order")
        if self.strangers and not self.strangers[0] <= self.strangers[1] > 0:
            raise ValueError("more strangers are noticed than there were")
        if any(right > judged for judged, right, _ in self.classes):
            raise ValueError("more pictures of a class are answered rightly than there are")
        if self.looks and list(map(len, self.looks)) != list(map(len, self.scores)):
            raise ValueError("there are more or fewer looks than scores")
        if any(len(look) not in (0, 6) for rows in self.looks or () for look in rows):
            raise ValueError("a look has six numbers, or none")
        if {len(self.scores), len(self.own or self.scores)} != {len(self.classes)}:
            raise ValueError("there are more or fewer scores than classes")
        return self


class Step(Part):
    """What every step of the history says."""

    what: str
    id: Session = Field(description="of the step")
    name: Text = Field(description="of the session, the class or the model")
    date: Date = Field(description="when it ended, UTC")
    classes: list[tuple[Class, Count]] = Field(
        max_length=MAX_CLASSES, description="pictures by class"
    )
    new: list[Class] = Field(max_length=MAX_CLASSES, description="classes that it brought")
    safecl: Version = Field(description="version of safecl")


class Learned(Step):
    what: Literal["learn"]
    seconds: float = Field(ge=0, le=1e9, description="it took")
    epochs: Count = Field(description="passes over the pictures; 0: nothing was tuned")
    precision: Literal["fp32", "bf16"] = Field("fp32", description="of the networks meanwhile")
    accuracy: Share | None = Field(description="leave-one-out accuracy afterwards")
    notes: dict[Text, bool | Count | Number | Text | None] = Field(
        description="what the method decided"
    )


class Renamed(Step):
    what: Literal["rename"]
    to: Class = Field(description="the new name")


class Other(Step):
    what: Literal["forget", "merge"]


class Corrected(Step):
    what: Literal["correct", "split", "join"]
    touched: list[Session] = Field(
        max_length=MAX_STEPS, description="sessions whose pictures it has changed"
    )
    was: list[tuple[Mark, Class]] = Field(
        [],
        max_length=1 << 20,
        description="pictures to which a person gave another class, and the one they had",
    )


Entry: TypeAlias = Annotated[Learned | Renamed | Corrected | Other, Field(discriminator="what")]


class Rewritten(Part):
    """What a step of the history said before a correction; classes by their places in the list
    then.
    """

    number: Count = Field(description="place in the history")
    classes: list[tuple[Count, Count]] = Field(
        max_length=MAX_CLASSES, description="pictures by class"
    )
    new: list[Count] = Field(max_length=MAX_CLASSES, description="classes that it brought")


class Before(Part):
    """What the header said before a session: lengths of lists that have grown since, and the
    calibration.
    """

    classes: Count = Field(description="classes")
    history: Count = Field(description="steps")
    kept: Count = Field(description="pictures whose features were kept")
    seen: Count = Field(description="pictures that were learned")
    calibration: Calibration | None
    dropped: list[tuple[Count, Class]] = Field(
        [], max_length=MAX_CLASSES, description="place and class that left"
    )
    entries: list[Rewritten] = Field(
        [], max_length=MAX_STEPS, description="steps that a correction has rewritten"
    )


class Undo(Part):
    """What the session changed, besides the tensors in its member."""

    session: Session = Field(description="id of the session")
    shapes: dict[Key, Annotated[list[Count], Field(max_length=8)]] = Field(
        description="shapes before it of tensors that only grew"
    )
    absent: list[Key] = Field(description="names that it brought")
    header: Before
    whole: bool = Field(description="false: enough for merging only")


class Thumbnail(Part):
    """A learned picture that is kept for a person to see."""

    picture: Mark = Field(description="of it")
    place: Count = Field(description="of its class in the list of classes")
    margin: Number = Field(
        description="logit of its class less the largest other one, when it was learned"
    )
    jpeg: str = Field(
        max_length=1 << 16,
        pattern="^[A-Za-z0-9+/]+={0,2}$",
        description="64 pixels at most, base64",
    )


class Thumbnails(Part):
    """``thumbnails.json``."""

    pictures: list[Thumbnail] = Field(
        max_length=2 * MAX_CLASSES, description="two per class at most"
    )


class ModelHeader(Part):
    """``model.json``."""

    format: Literal[7] = Field(description="version of the format")
    safecl: Version = Field(description="version that made the model")
    state: Hex = Field(
        description="id of what was written, another one in every file; folder of the members"
    )
    frozen: bool = Field(description="it only predicts")
    tuned: bool = Field(
        True, description="false: what answers before any tuning is all that there is"
    )
    settings: dict[str, JsonValue] = Field(description="all of them: see the page of settings")
    backbone: Backbone
    choice: Choice | None = None
    transform: Crop
    classes: list[Class] = Field(
        min_length=1, max_length=MAX_CLASSES, description="in the order of the logits"
    )
    calibration: Calibration | None
    statistics: dict[Key, Count] = Field(
        description="random features of each of the ridge heads' statistics"
    )
    memory_bytes: Count = Field(description="bytes of what is kept of pictures for learning")
    history: list[Entry] = Field(
        min_length=1, max_length=MAX_STEPS, description="what was done, the oldest first"
    )
    chain: list[Session] = Field(
        max_length=MAX_STEPS, description="sessions that the Gram matrices do not yet include"
    )
    records: dict[Session, Annotated[list[Key], Field(max_length=1000)]] = Field(
        max_length=MAX_STEPS, description="heads that features of a session were added to"
    )
    undo: list[Undo] = Field(
        max_length=MAX_STEPS, description="sessions that can be taken back, the oldest first"
    )
    members: dict[Key, Member] = Field(description="every member but this one")

    @model_validator(mode="after")
    def _fits_together(self) -> "ModelHeader":
        back = [one.session for one in self.undo if one.whole]
        learned = {step.id for step in self.history if step.what == "learn"}
        corrected = {step.id for step in self.history if isinstance(step, Corrected)}
        wanted = [PREDICT]
        if not self.frozen:
            wanted += [THUMBNAILS] if self.settings.get("thumbnails") else []
            wanted += [
                LEARN,
                RECORDS,
                KEPT,
                *(f"undo_{i}.safetensors" for i in range(len(self.undo))),
            ]
        dropped = sum(len(one.header.dropped) for one in self.undo)
        shorter = [(len(self.classes) + dropped, one.header.classes) for one in self.undo]
        shorter += [
            (one.header.history, 1 + entry.number)
            for one in self.undo
            for entry in one.header.entries
        ]
        shorter += [(len(self.history), one.header.history) for one in self.undo]
        judged = self.calibration and len(self.calibration.classes)
        pairs = [] if self.calibration is None else [one[:2] for one in self.calibration.confused]
        for fits, reason in (
            (len(set(self.classes)) == len(self.classes), "classes: a name is there twice"),
            (judged in (None, len(self.classes)), "calibration: it is of more or fewer classes"),
            (
                all(max(pair) < len(self.classes) for pair in pairs),
                "calibration: a confused class is not there",
            ),
            (
                self.transform.size == self.backbone.size,
                "transform: its size is not that of the backbone",
            ),
            (isinstance(self.settings.get("method"), dict), "settings: there is no method"),
            (sorted(wanted) == sorted(self.members), f"members: they must be {', '.join(wanted)}"),
            (
                not self.frozen or not (self.chain or self.records or self.undo),
                "undo: a frozen model has none",
            ),
            (
                {*self.chain} <= {*self.records} and len({*self.chain}) == len(self.chain),
                "chain: not as in records",
            ),
            (
                [one for one in back if one in {*self.chain} or one not in corrected]
                == [one for one in self.chain if one in {*back}],
                "undo: its sessions are not as in the chain",
            ),
            (
                {one.session for one in self.undo} <= learned | corrected,
                "undo: a session is not in the history",
            ),
            (
                all(now >= then for now, then in shorter),
                "undo: there was more before a session than there is now",
            ),
        ):
            if not fits:
                raise ValueError(reason)
        # Letters of other alphabets are let in: only an open model can be renamed.
        for sentence in label_problems(self.classes, "the model", alphabets=False):
            raise ValueError(f"classes: {sentence}")
        _check_settings(self.settings, self.backbone)
        return self


def load(text: bytes, name: str) -> Header:
    """The header in a text, once its format is found right; ``name``: of the file, for messages."""
    try:
        header = json.loads(text, object_pairs_hook=_once)
        if not isinstance(header, dict) or type(header.get("format")) is not int:
            raise ValueError("it does not say its format")
    except RecursionError:
        raise _damaged(name, "its lists are nested too deeply") from None
    except ValueError as error:
        raise _damaged(name, str(error)) from None
    version = header.get("safecl") if isinstance(header.get("safecl"), str) else "unknown"
    if header["format"] > FORMAT:
        raise SafeclError("model.newer", name=name, version=version)
    if header["format"] < FORMAT:
        raise SafeclError("model.earlier", name=name, format=header["format"], version=version)
    return _of_today(header)


def _of_today(header: Header) -> Header:
    """With the settings of the method as they are called today."""
    settings = header.get("settings")
    if not isinstance(settings, dict) or not isinstance(settings.get("method"), dict):
        return header  # what is wrong is said where it is checked
    return {**header, "settings": {**settings, "method": settings_of_today(settings["method"])}}


def check(text: bytes, name: str | None, kind: type[Part] = ModelHeader) -> Any:
    """What a text says; refused where it is not as ``kind`` says. ``name``: of its file, None
    before there is one.
    """
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        reason = first["msg"].removeprefix("Value error, ").rstrip(".")
        reason = f"{place}: {reason}" if place else reason
        if name is None:
            raise SafeclError("model.not-written", reason=shown(reason)) from None
        if first["type"] == "extra_forbidden":
            reason = f"{shown(reason):.200}, unless a newer safecl has made it: update safecl then"
        raise _damaged(name, reason) from None


def _damaged(name: str, reason: str) -> SafeclError:
    return SafeclError("model.header.damaged", name=name, reason=shown(reason))


def _check_settings(given: dict[str, Any], backbone: Backbone) -> None:
    """Refuse settings that are unknown, too large, or not written as they would be."""
    try:
        check_sizes(given)
        known = flatten(resolve(given).model_dump(mode="json"))
    except SafeclError as error:
        raise SafeclError("model.settings.unreadable", error=error) from error
    for key, value in flatten(given).items():
        if key not in known or json.dumps(value) != json.dumps(known[key]):
            raise ValueError(f"settings.{key}: {json.dumps(value)} is not how a model has it")
    if known["backbone.image_size"] not in (None, backbone.size):
        raise ValueError("settings.backbone.image_size: it is not the size of the backbone")


def check_sizes(given: dict[str, Any]) -> None:
    """Refuse settings with numbers that no model can have."""
    for key, value in flatten(given).items():
        for number in value if isinstance(value, list) else [value]:
            limit = (
                MAX_ROWS if key.startswith("method.") and isinstance(number, int) else MAX_SETTING
            )
            if key != "seed" and isinstance(number, int | float) and abs(number) > limit:
                raise SafeclError("model.setting.too-large", key=key, value=value, limit=limit)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found

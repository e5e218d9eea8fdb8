"""The header of a model file, defined once: its parts, their types and bounds. docs/format.md is made from it.

To add a field, add it here, with a default unless FORMAT is raised as well; to add a kind of step, add a class and name
it in ``Entry``. What is written is checked as what is read is. Nothing heavy is imported.
"""

import json
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from safecl.classifier.settings import resolve
from safecl.errors import SafeclError
from safecl.lines import shown
from safecl.settings import flatten
from safecl.streams.labels import MAX_CLASSES, Label, check_name, label_problems

FORMAT = 7
MAX_HEADER = 1 << 26  # bytes
MAX_STEPS = 10_000  # of the history, and sessions that can be rolled back
MAX_SETTING = 10_000_000  # the largest number in the settings, but for the seed
MAX_ROWS = 1 << 16  # the largest whole number of a method: a Gram matrix of that many rows has 17 GB
PREDICT, LEARN, RECORDS, KEPT = (f"{name}.safetensors" for name in ("predict", "learn", "records", "kept"))
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
Number = Annotated[float, Field(title="number", ge=-1e15, le=1e15)]  # a whole one has 64 bits, as torch needs
Share = Annotated[float, Field(title="share", ge=0, le=1.000001)]  # a mean may be rounded up
Aspect = Annotated[float, Field(title="aspect", ge=0.01, le=100)]
Temperature = Annotated[float, Field(title="temperature", ge=1e-3, le=1e3)]
Size = Annotated[int, Field(title="size", ge=1, le=8192)]
Hex = Annotated[str, Field(title="digest", pattern="^[0-9a-f]{32}$")]
Session = Annotated[str, Field(title="id", pattern="^[0-9a-f]{12}$")]
Key = Annotated[str, Field(title="key", max_length=300, pattern=r"^[A-Za-z0-9_./-]+$")]  # of a tensor or a module
Version = Annotated[str, Field(title="version", max_length=64, pattern=r"^[A-Za-z0-9_.+!-]+$")]
Date = Annotated[str, Field(title="date", pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}[+]00:00$")]
Text = Annotated[str, Field(title="text", max_length=4096)]
Mark = Annotated[int, Field(title="hash", ge=-(1 << 63), lt=1 << 63)]  # 64 bits of a picture's digest


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


class Crop(Part):
    """How a picture becomes an input; ``scale``, ``ratio`` and ``flip`` matter to training alone."""

    size: Size = Field(description="side, pixels")
    margin: float = Field(ge=0.1, le=10, description="the shorter side is resized to size × margin, then cropped")
    scale: tuple[Share, Share] = Field(description="area of a random crop, least and most")
    ratio: tuple[Aspect, Aspect] = Field(description="aspect of a random crop, least and most")
    flip: Share = Field(description="probability of a horizontal flip")


class Calibration(Part):
    """What probabilities and the answer unknown rest on."""

    temperature: Temperature | None = Field(description="logits are divided by it; null with too few pictures")
    slope: Number = Field(description="of the correction of the largest probability")
    offset: Number = Field(description="of the same correction")
    error: Share | None = Field(description="expected calibration error")
    bins: list[tuple[Share, Share, Count]] = Field(
        max_length=100, description="mean confidence, accuracy and pictures of each bin"
    )
    accuracy: Share = Field(description="accuracy on new pictures, as leaving learned ones out tells it")
    interval: tuple[Share, Share] = Field(description="95 % interval of the accuracy")
    classes: list[tuple[Count, Count, Count]] = Field(
        max_length=MAX_CLASSES, description="of each class: pictures left out, correct ones, and with half as many"
    )
    confused: list[tuple[Count, Count, Count]] = Field(
        max_length=1000, description="places of a class and of the answer to its pictures, and how many of them"
    )
    scales: tuple[tuple[Number, Number], tuple[Number, Number]] | None = Field(
        description="mean and standard deviation of the largest logit and of the likeness; null: the logit is the score"
    )
    scores: list[list[Number]] = Field(
        max_length=MAX_CLASSES, description="of each answer: how known its pictures look, in ascending order"
    )
    pictures: Count = Field(description="pictures that were left out")

    @model_validator(mode="after")
    def _in_order(self) -> "Calibration":
        if any(scores != sorted(scores) for scores in self.scores):
            raise ValueError("scores are not in ascending order")
        if any(right > judged for judged, right, _ in self.classes):
            raise ValueError("more pictures of a class are answered rightly than there are")
        if len(self.scores) != len(self.classes):
            raise ValueError("there are more or fewer scores than classes")
        return self


class Step(Part):
    """What every step of the history says."""

    what: str
    id: Session = Field(description="of the step")
    name: Text = Field(description="of the session, the class or the model")
    date: Date = Field(description="when it ended, UTC")
    classes: list[tuple[Class, Count]] = Field(max_length=MAX_CLASSES, description="pictures by class")
    new: list[Class] = Field(max_length=MAX_CLASSES, description="classes that it brought")
    safecl: Version = Field(description="version of safecl")


class Learned(Step):
    what: Literal["learn"]
    seconds: float = Field(ge=0, le=1e9, description="it took")
    epochs: Count = Field(description="passes over the pictures")
    accuracy: Share | None = Field(description="leave-one-out accuracy afterwards")
    notes: dict[Text, bool | Count | Number | Text | None] = Field(description="what the method decided")


class Renamed(Step):
    what: Literal["rename"]
    to: Class = Field(description="the new name")


class Other(Step):
    what: Literal["forget", "merge"]


class Corrected(Step):
    what: Literal["correct", "split", "join"]
    touched: list[Session] = Field(max_length=MAX_STEPS, description="sessions whose pictures it has changed")
    was: list[tuple[Mark, Class]] = Field(
        [], max_length=1 << 20, description="pictures to which a person gave another class, and the one they had"
    )


Entry: TypeAlias = Annotated[Learned | Renamed | Corrected | Other, Field(discriminator="what")]


class Rewritten(Part):
    """What a step of the history said before a correction; classes by their places in the list then."""

    number: Count = Field(description="place in the history")
    classes: list[tuple[Count, Count]] = Field(max_length=MAX_CLASSES, description="pictures by class")
    new: list[Count] = Field(max_length=MAX_CLASSES, description="classes that it brought")


class Before(Part):
    """What the header said before a session: lengths of lists that have grown since, and the calibration."""

    classes: Count = Field(description="classes")
    history: Count = Field(description="steps")
    kept: Count = Field(description="pictures whose features were kept")
    seen: Count = Field(description="pictures that were learned")
    calibration: Calibration | None
    dropped: list[tuple[Count, Class]] = Field([], max_length=MAX_CLASSES, description="place and class that left")
    entries: list[Rewritten] = Field([], max_length=MAX_STEPS, description="steps that a correction has rewritten")


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
    margin: Number = Field(description="logit of its class less the largest other one, when it was learned")
    jpeg: str = Field(max_length=1 << 16, pattern="^[A-Za-z0-9+/]+={0,2}$", description="64 pixels at most, base64")


class Thumbnails(Part):
    """``thumbnails.json``."""

    pictures: list[Thumbnail] = Field(max_length=2 * MAX_CLASSES, description="two per class at most")


class ModelHeader(Part):
    """``model.json``."""

    format: Literal[7] = Field(description="version of the format")
    safecl: Version = Field(description="version that made the model")
    state: Hex = Field(description="id of what was written, another one in every file; folder of the members")
    frozen: bool = Field(description="it only predicts")
    settings: dict[str, JsonValue] = Field(description="all of them: see the page of settings")
    backbone: Backbone
    transform: Crop
    classes: list[Class] = Field(min_length=1, max_length=MAX_CLASSES, description="in the order of the logits")
    calibration: Calibration | None
    statistics: dict[Key, Count] = Field(description="random features of each of the ridge heads' statistics")
    memory_bytes: Count = Field(description="bytes of what is kept of pictures for learning")
    history: list[Entry] = Field(min_length=1, max_length=MAX_STEPS, description="what was done, the oldest first")
    chain: list[Session] = Field(max_length=MAX_STEPS, description="sessions that the Gram matrices do not yet include")
    records: dict[Session, Annotated[list[Key], Field(max_length=1000)]] = Field(
        max_length=MAX_STEPS, description="heads that features of a session were added to"
    )
    undo: list[Undo] = Field(max_length=MAX_STEPS, description="sessions that can be taken back, the oldest first")
    members: dict[Key, Member] = Field(description="every member but this one")

    @model_validator(mode="after")
    def _fits_together(self) -> "ModelHeader":
        back = [one.session for one in self.undo if one.whole]
        learned = {step.id for step in self.history if step.what == "learn"}
        corrected = {step.id for step in self.history if isinstance(step, Corrected)}
        wanted = [PREDICT]
        if not self.frozen:
            wanted += [THUMBNAILS] if self.settings.get("thumbnails") else []
            wanted += [LEARN, RECORDS, KEPT, *(f"undo_{i}.safetensors" for i in range(len(self.undo)))]
        dropped = sum(len(one.header.dropped) for one in self.undo)
        shorter = [(len(self.classes) + dropped, one.header.classes) for one in self.undo]
        shorter += [(one.header.history, 1 + entry.number) for one in self.undo for entry in one.header.entries]
        shorter += [(len(self.history), one.header.history) for one in self.undo]
        judged = self.calibration and len(self.calibration.classes)
        pairs = [] if self.calibration is None else [one[:2] for one in self.calibration.confused]
        for fits, reason in (
            (len(set(self.classes)) == len(self.classes), "classes: a name is there twice"),
            (judged in (None, len(self.classes)), "calibration: it is of more or fewer classes"),
            (all(max(pair) < len(self.classes) for pair in pairs), "calibration: a confused class is not there"),
            (self.transform.size == self.backbone.size, "transform: its size is not that of the backbone"),
            (isinstance(self.settings.get("method"), dict), "settings: there is no method"),
            (sorted(wanted) == sorted(self.members), f"members: they must be {', '.join(wanted)}"),
            (not self.frozen or not (self.chain or self.records or self.undo), "undo: a frozen model has none"),
            ({*self.chain} <= {*self.records} and len({*self.chain}) == len(self.chain), "chain: not as in records"),
            (
                [one for one in back if one in {*self.chain} or one not in corrected]
                == [one for one in self.chain if one in {*back}],
                "undo: its sessions are not as in the chain",
            ),
            ({one.session for one in self.undo} <= learned | corrected, "undo: a session is not in the history"),
            (all(now >= then for now, then in shorter), "undo: there was more before a session than there is now"),
        ):
            if not fits:
                raise ValueError(reason)
        for sentence in label_problems(self.classes, "the model"):
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
        raise SafeclError(
            f"The model {name} was written by a newer safecl ({version!s:.20}); update safecl to read it."
        )
    if header["format"] < FORMAT:
        raise SafeclError(
            f"The model {name} has the format {header['format']} of an early safecl ({version!s:.20}), which is no "
            "longer read; teach a new model from its pictures, or use it with that version."
        )
    return header


def check(text: bytes, name: str | None, kind: type[Part] = ModelHeader) -> Any:
    """What a text says; refused where it is not as ``kind`` says. ``name``: of its file, None before there is one."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place, reason = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ").rstrip(".")
        reason = f"{place}: {reason}" if place else reason
        if name is None:
            raise SafeclError(f"The model cannot be written ({shown(reason):.300}); use the one before.") from None
        if first["type"] == "extra_forbidden":
            reason = f"{shown(reason):.200}, unless a newer safecl has made it: update safecl then"
        raise _damaged(name, reason) from None


def _damaged(name: str, reason: str) -> SafeclError:
    return SafeclError(f"The header of the model {name} is damaged ({shown(reason):.300}); use a copy of the file.")


def _check_settings(given: dict[str, Any], backbone: Backbone) -> None:
    """Refuse settings that are unknown, too large, or not written as they would be."""
    try:
        check_sizes(given)
        known = flatten(resolve(given).model_dump(mode="json"))
    except SafeclError as error:
        raise SafeclError(
            f"The settings of the model cannot be read: {error} A newer safecl may have made it."
        ) from error
    for key, value in flatten(given).items():
        if key not in known or json.dumps(value) != json.dumps(known[key]):
            raise ValueError(f"settings.{key}: {json.dumps(value)} is not how a model has it")
    if known["backbone.image_size"] not in (None, backbone.size):
        raise ValueError("settings.backbone.image_size: it is not the size of the backbone")


def check_sizes(given: dict[str, Any]) -> None:
    """Refuse settings with numbers that no model can have."""
    for key, value in flatten(given).items():
        for number in value if isinstance(value, list) else [value]:
            limit = MAX_ROWS if key.startswith("method.") and isinstance(number, int) else MAX_SETTING
            if key != "seed" and isinstance(number, int | float) and abs(number) > limit:
                raise SafeclError(f"{key}={value} is more than a model can have ({limit:,}).")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found

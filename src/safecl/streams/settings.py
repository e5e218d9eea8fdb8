"""The settings of a stream: one class per kind of stream."""

import difflib
import os
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_args

from pydantic import (
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import ErrorDetails

from safecl.entry_points import brought, load
from safecl.errors import SafeclError, unknown
from safecl.lines import slug
from safecl.settings import Idle, Settings, With, explain

Protocol: TypeAlias = Literal["class", "domain", "mixed"]
Level: TypeAlias = Literal["mild", "hard"]
Unreadable: TypeAlias = Literal["refuse", "skip"]
Duplicates: TypeAlias = Literal["refuse", "allow"]
DATASETS = (
    # of the paper
    *(
        "cifar100",
        "imagenet-r",
        "imagenet-a",
        "cub",
        "omnibenchmark",
        "vtab",
        "domainnet",
    ),
    *("cars", "food101", "core50", "office-home", "flowers102", "pets", "aircraft", "dtd"),
    *("eurosat", "gtsrb", "cifar10", "svhn", "stl10"),
)
ORDERED = ("vtab", "domainnet", "core50", "office-home")
SHUFFLED = [name for name in DATASETS if name not in ORDERED]  # whose classes have no order
FORMS = ("folder:PATH", "csv:FILE", "hf:NAME")

PathText: TypeAlias = Annotated[
    str, BeforeValidator(lambda v: os.fspath(v) if isinstance(v, os.PathLike) else v)
]
Pair: TypeAlias = tuple[float, float]


class _Sessions(Settings):
    """What every kind has."""

    kind: str
    protocol: Protocol | None = Field(
        None, description="class, domain or mixed; what the data suggests if not given"
    )
    held_out: float = Field(
        0.0, ge=0, lt=1, description="part of each session's training pictures kept for validation"
    )

    @property
    def title(self) -> str:
        """A short word for folder names and tables."""
        place = Path(
            os.path.abspath(
                os.path.expanduser(getattr(self, "path", getattr(self, "name", self.kind)))
            )
        )
        return slug(place.stem if self.kind == "csv" else place.name)


class GlyphsSettings(_Sessions):
    """The embedded stream of drawn characters."""

    kind: Literal["glyphs"] = "glyphs"
    classes: int | None = Field(
        None, gt=0, description="how many characters; 50, or 30 in a domain stream"
    )
    sessions: int | None = Field(
        None, gt=0, description="how many sessions; 5, or all styles in a domain stream"
    )
    train: int = Field(
        20,
        gt=0,
        description="training pictures per class, in a domain stream per class and session",
    )
    test: int = Field(
        10, gt=0, description="test pictures per class, in a domain stream per class and session"
    )
    styles: tuple[str, ...] | None = Field(
        None, min_length=1, description="a style for each session of new classes"
    )
    difficulty: Level = Field(
        "hard", description="how far pictures of a class differ: mild or hard"
    )


class _Pictures(_Sessions):
    """What every kind has whose pictures are read and not drawn."""

    acts_with: ClassVar = {
        "order_seed": (With("order", (None,)), With("protocol", (None, "class")))
    }
    first: int | None = Field(
        None, gt=0, description="classes in the first session; as step if not given"
    )
    step: int | None = Field(
        None, gt=0, description="classes in every later session; a tenth of all if not given"
    )
    order: tuple[str | int, ...] | None = Field(None, description="the classes in the order wanted")
    domains: tuple[str, ...] | None = Field(None, description="the domains in the order wanted")
    margin: float | None = Field(
        None, ge=1, description="resized side over input side before the central crop"
    )
    scale: Pair | None = Field(None, description="smallest and largest area of a random crop")
    ratio: Pair | None = Field(None, description="narrowest and widest aspect of a random crop")
    flip: float | None = Field(None, ge=0, le=1, description="how often a picture is mirrored")
    cache: bool | PathText = Field(
        True, description="keep decoded pictures on disk: on, off, or a folder"
    )

    @field_validator("scale", "ratio")
    @classmethod
    def _ordered(cls, pair: Pair | None, field: ValidationInfo) -> Pair | None:
        if pair is not None and not 0 < pair[0] <= pair[1]:
            raise ValueError("the first number must be above 0 and the second not below it")
        if pair is not None and field.field_name == "scale" and pair[1] > 1:
            raise ValueError("a crop is at most the whole picture, 1")
        return pair


class _Own(_Pictures):
    """Pictures without a published test split."""

    acts_with: ClassVar = {**_Pictures.acts_with, "split_seed": (With("test_fraction"),)}
    order_seed: int | Literal["seed"] | None = Field(
        "seed",
        description="of the class order; seed follows the run's, null keeps the classes sorted",
    )
    test_fraction: float = Field(
        0.2, ge=0, lt=1, description="without a test split: part of every class to test on"
    )
    split_seed: Annotated[int, Field(ge=0)] | Literal["seed"] = Field(
        "seed", description="without a test split: of the draw; seed follows the run's"
    )


class FilesSettings(_Own):
    """Pictures in files of the user."""

    unreadable: Unreadable = Field(
        "refuse", description="pictures that cannot be read: refuse or skip"
    )
    duplicates: Duplicates = Field(
        "refuse", description="one picture in two classes: refuse or allow"
    )


class FolderSettings(FilesSettings):
    """A folder of class folders."""

    kind: Literal["folder"] = "folder"
    path: PathText = Field(
        min_length=1, description="the folder that holds the class folders, or shards"
    )


class TableSettings(FilesSettings):
    """A CSV table with the columns path and label."""

    kind: Literal["csv"] = "csv"
    path: PathText = Field(
        min_length=1, description="the table; paths in it are relative to its folder"
    )


class HuggingFaceSettings(_Own):
    """A Hugging Face dataset."""

    kind: Literal["hf"] = "hf"
    name: str = Field(min_length=1, description="its name on the hub, or a folder of it")
    image: str | None = Field(
        None, description="the column of pictures; found by its type if not given"
    )
    label: str | None = Field(
        None, description="the column of labels; found by its type if not given"
    )


class DatasetSettings(_Pictures):
    """One of the published datasets."""

    acts_with: ClassVar = {
        "order_seed": (
            With("name", tuple(SHUFFLED), advise=False, unless=ORDERED),
            *_Pictures.acts_with["order_seed"],
        )
    }
    kind: Literal["dataset"] = "dataset"
    name: str = Field(description="which dataset")
    order_seed: int | None = Field(
        1993, description="seed of the class order; null keeps the classes sorted"
    )
    root: PathText | None = Field(
        None, description="folder of prepared datasets; SAFECL_DATA, or data, if not given"
    )

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if canonical(name) not in datasets():
            raise unknown("dataset", name, datasets())
        return canonical(name)

    def idle(self, key: str, above: str = "") -> Idle | None:
        if key == "order_seed" and self.name not in DATASETS:
            dataset = load("datasets", brought("datasets", DATASETS)[self.name])
            if not getattr(dataset, "shuffled", True):
                error = SafeclError(
                    "stream.order-seed.idle",
                    key=f"{above}{key}",
                    other=f"{above}name",
                    name=self.name,
                )
                return Idle(f"{above}{key}", f"{above}name", error)
        return super().idle(key, above)


AnyStream: TypeAlias = (
    GlyphsSettings | FolderSettings | TableSettings | HuggingFaceSettings | DatasetSettings
)
StreamSettings: TypeAlias = Annotated[AnyStream, Field(discriminator="kind")]
KINDS: dict[str, type[_Sessions]] = {
    kind: settings
    for settings in get_args(AnyStream)
    for kind in get_args(settings.model_fields["kind"].annotation)
}
_ADAPTER: TypeAdapter[StreamSettings] = TypeAdapter(StreamSettings)


def parse_stream(values: str | dict[str, Any]) -> StreamSettings:
    """The settings in ``values``, a short form or keys (of glyphs without a kind), or what is wrong
    with them.
    """
    keys = short_form(values) if isinstance(values, str) else {"kind": "glyphs", **values}
    if keys["kind"] not in KINDS:
        raise unknown("stream.kind =", str(keys["kind"]), KINDS)
    try:
        return _ADAPTER.validate_python(keys)
    except ValidationError as error:
        raise _explained(error.errors()[0], keys) from None


def short_form(text: str) -> dict[str, Any]:
    """The keys that ``glyphs``, ``folder:PATH``, ``csv:FILE``, ``hf:NAME`` or a dataset stand
    for.
    """
    kind, colon, rest = text.partition(":")
    form = next((form for form in FORMS if form.startswith(f"{kind}:")), None)
    if colon and form is not None:
        if not rest:
            raise SafeclError("stream.name.cut", text=text, form=form)
        return {"kind": kind, "name" if kind == "hf" else "path": rest}
    if canonical(text) == "glyphs":
        return {"kind": "glyphs"}
    if canonical(text) in datasets():
        return {"kind": "dataset", "name": canonical(text)}
    if os.path.isdir(text) or (os.path.isfile(text) and text.lower().endswith(".tar")):
        raise SafeclError("stream.name.folder", text=text)
    if os.path.isfile(text):
        raise SafeclError("stream.name.table", text=text)
    raise unknown("stream", text, [*names(), *FORMS])


def _explained(error: ErrorDetails, values: dict[str, Any]) -> SafeclError:
    """What is wrong with ``values``, with the key as it is typed."""
    kind = str(values["kind"])
    name = str(error["loc"][1])  # the member of the union comes first
    if error["type"] == "extra_forbidden":
        if kind == "glyphs" and name in ("first", "step"):
            return SafeclError("stream.glyphs.cut", name=name)
        if kind != "glyphs" and name == "sessions":
            keys = "stream.step, the classes of each session, and stream.first, those of the first"
            return SafeclError("stream.sessions.cut", kind=kind, keys=keys)
        known = [key for key in KINDS[kind].model_fields if key != "kind"]
        near = difflib.get_close_matches(name, known, n=1)
        every = ", ".join(f"stream.{key}" for key in sorted(known))
        hint = f"did you mean 'stream.{near[0]}'?" if near else f"choose one of: {every}."
        return SafeclError("stream.key.unknown", name=name, kind=kind, hint=hint)
    if name not in values:
        return SafeclError(
            "stream.key.missing", name=name, description=KINDS[kind].model_fields[name].description
        )
    error["input"] = values[name]  # all of a list, not the number in it
    return explain(error, f"stream.{name}")


def data_root(root: str | Path | None = None) -> Path:
    """The folder of prepared datasets: ``root``, or SAFECL_DATA, or data."""
    return Path(root if root is not None else os.environ.get("SAFECL_DATA", "data")).expanduser()


def names() -> list[str]:
    """The streams that have a name; ``FORMS`` are the others."""
    return ["glyphs", *datasets()]


def datasets() -> tuple[str, ...]:
    """The published datasets: ours, and those of packages that are installed."""
    return *DATASETS, *brought("datasets", DATASETS)


def canonical(name: str) -> str:
    """The name of a stream however it is spelled: ``CIFAR-100`` and ``cifar_100`` are
    ``cifar100``.
    """
    bare = {re.sub("[-_]", "", known): known for known in names()}
    return bare.get(re.sub("[-_]", "", name.lower()), name)

"""``safecl backbones``: which there are, what each is, and fetching their weights."""

import difflib
from typing import TYPE_CHECKING, Annotated

import typer

from safecl.cli.terminal import at_work, make_console, print_facts, say
from safecl.errors import SafeclError, Settable, unknown
from safecl.lines import counted

if TYPE_CHECKING:
    from safecl.backbone.backbone import Backbone
    from safecl.backbone.settings import BackboneSettings
    from safecl.backbone.timing import Timing

FETCH = "fetch"


def backbones(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME | fetch NAME]", help="One to describe, or to fetch."),
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="All that timm has weights for; NAME: a part of theirs.")
    ] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure first how long each takes here: minutes.")
    ] = False,
) -> None:
    """List backbones to choose from: size, licence, time, what each is good at; describe or fetch
    one.

    Example:  safecl backbones   or   safecl backbones small   or   safecl backbones fetch small
    or   safecl backbones --all convnext
    """
    first, *rest = words or [""]
    if first == FETCH and not rest:
        raise SafeclError("command.backbones.fetch-what")
    if (all_ and (measure or rest)) or (measure and first) or (rest and first != FETCH):
        raise SafeclError("command.backbones.one-thing")
    if all_:
        _list_all(first)
    elif first == FETCH:
        for name in rest:
            _fetch(name)
    elif first:
        _describe(first)
    else:
        _list(measure)


def _list(measure: bool) -> None:
    from safecl.backbone import timing
    from safecl.backbone.curated import at_hand, curated
    from safecl.backbone.settings import BackboneSettings
    from safecl.report.table import NONE, make_table, print_table

    rows = []
    for row in curated():
        took = timing.known(row.name, row.side)
        if took is None and measure:
            took = _timed(_untrained(BackboneSettings(name=row.word or row.name)))
        rows.append(
            [
                row.word or row.name,
                f"{row.parameters / 1e6:.1f} M",
                f"{row.side} px",
                row.licence,
                "yes" if at_hand(row.name) else "no",
                f"{took.seconds:.1f} ({took.device})" if took else NONE,
                row.good_at,
            ]
        )
    heads = ("name", "size", "input", "licence", "at hand", "s per 100", "good at")
    texts = ("licence", "at hand", "good at")
    caption = (
        "at hand: the weights are here already (safecl backbones fetch NAME); s per 100: seconds"
        " per 100 pictures on this machine, once measured (--measure)"
    )
    table = make_table("Backbones", heads, rows, words=texts)
    print_table(make_console(), table, drop=("input", "good at", "at hand"), caption=caption)


def _list_all(part: str) -> None:
    import timm

    from safecl.backbone.hub import cached
    from safecl.backbone.licences import licence_of
    from safecl.backbone.settings import BackboneSettings
    from safecl.report.table import make_table, print_table

    names = timm.list_pretrained(f"*{part}*")
    if not names:
        raise SafeclError("command.backbones.none", part=part)
    here = set(cached())
    rows = [
        [name, licence_of(BackboneSettings(name=name)), "yes" if name in here else "no"]
        for name in names
    ]
    heads = ("name", "licence", "at hand")
    title = f"{counted(len(names), 'set')} of weights that timm has"
    print_table(make_console(), make_table(title, heads, rows, words=heads))


def _describe(word: str) -> None:
    from safecl.backbone import timing
    from safecl.backbone.curated import row_of
    from safecl.backbone.licences import licence_of, terms
    from safecl.backbone.settings import BackboneSettings
    from safecl.pet.facts import network_facts

    settings = BackboneSettings(name=word)
    with at_work(f"Building {word}"):
        found = network_facts(settings.name, settings.image_size)
    took = timing.known(found.name, found.size) or _timed(_untrained(settings))
    licence = licence_of(settings)
    row = row_of(found.name)
    side = f"{found.size} × {found.size} px{' and no other' if found.fixed_size else ''}"
    read = [found.own, found.earlier, *([found.patches] if found.patches else [])]
    facts = [
        ("backbone", f"{found.name} ({found.kind})"),
        ("good at", row.good_at if row else ""),
        ("size", f"{found.parameters / 1e6:.1f} M parameters, {found.widths.own} features"),
        ("licence", licence),
        ("", terms(found.name, licence) or ""),
        ("weights", _weights(settings)),
        ("input", f"{side}, cropped to {found.crop:g}, {found.interpolation}"),
        ("normalised", f"mean {_numbers(found.mean)}, deviation {_numbers(found.std)}"),
        ("read", "; ".join(read)),
        ("tuned by", ", ".join(kind for kind in found.pets if kind != "none")),
        ("time", f"{took.seconds:.1f} s per 100 pictures on this machine ({took.device})"),
    ]
    print_facts(make_console(), [(key, value) for key, value in facts if value])


def _fetch(word: str) -> None:
    import timm

    from safecl.backbone import hub
    from safecl.backbone.licences import licence_of, terms
    from safecl.backbone.settings import EMBEDDED, SIZES, BackboneSettings
    from safecl.report.words import size

    settings = BackboneSettings(name=word)
    name = settings.name
    if name == EMBEDDED:
        raise SafeclError("backbone.fetch.inside", name=word)
    if not timm.is_model(name):
        near = difflib.get_close_matches(word, timm.list_pretrained(), n=1, cutoff=0.5)
        raise unknown("backbone", word, SIZES, *near)
    try:
        file = hub.fetch(name)
    except Settable as error:
        raise error.at(None) from error
    if file is None:
        raise SafeclError("backbone.fetch.nowhere", name=name)
    say(f"The weights of {name} are at hand ({size(file.stat().st_size)}): --backbone {word}.")
    if told := terms(name, licence_of(settings)):
        say(f"Note: {told}")


def _untrained(settings: "BackboneSettings") -> "Backbone":
    """With random weights: what is described, and how long it takes, does not depend on them."""
    from safecl.backbone.load import load_backbone
    from safecl.backbone.settings import EMBEDDED
    from safecl.engine.device import choose_device, choose_precision

    if settings.name != EMBEDDED:
        settings = settings.model_copy(update={"weights": "random"})
    place = choose_device("auto")
    return load_backbone(settings).to(place, choose_precision("auto", place))


def _timed(backbone: "Backbone") -> "Timing":
    from safecl.backbone import timing

    with at_work(f"Measuring {backbone.name}"):
        took = timing.measure(backbone)
    timing.remember(backbone.name, took)
    return took


def _weights(settings: "BackboneSettings") -> str:
    from safecl.backbone import hub
    from safecl.backbone.settings import EMBEDDED

    if settings.name == EMBEDDED:
        return "inside the package"
    file = hub.cached_file(settings.name)
    return f"not at hand: safecl backbones fetch {settings.name}" if file is None else str(file)


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:g}" for value in values)

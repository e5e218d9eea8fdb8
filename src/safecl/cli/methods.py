"""What ``safecl methods`` says. Without a backbone nothing heavy is imported: it answers at once."""

from rich.console import Console

from safecl.cli.terminal import print_facts
from safecl.experiments.config import load
from safecl.methods.catalog import method_settings
from safecl.report.table import make_table, print_table

SESSIONS, CLASSES = 10, 10  # what sizes are measured after


def print_methods(backbone: str | None, console: Console) -> None:
    """A line for each method; with a backbone, also what it trains on that and how many bytes it keeps."""
    sizes = measured(backbone) if backbone is not None else {}
    words = ("kind", "protocols", "kept between sessions")
    heads = ("method", *words[:2], *(("learnable", "bytes kept") if sizes else ()), words[2])
    rows = [
        [name, kind.kind, ", ".join(kind.protocols), *sizes.get(name, []), kind.keeps]
        for name, kind in method_settings().items()
    ]
    caption = "safecl methods --backbone NAME counts learnable numbers and bytes on a backbone."
    if sizes:
        caption = (
            f"With the values of each preset on {backbone}; learnable: without heads; both after {SESSIONS} sessions "
            f"of {CLASSES} classes."
        )
    print_table(console, make_table("Methods", heads, rows, words), drop=["protocols", "kind"], caption=caption)
    console.print()
    papers = method_settings().items()
    print_facts(console, [(name, f"{kind.title}. {kind.paper[0].upper()}{kind.paper[1:]}.") for name, kind in papers])


def measured(backbone: str) -> dict[str, list[str]]:
    """Learnable numbers and bytes kept, by method. No weights are fetched: sizes do not depend on them."""
    from safecl.backbone.load import load_backbone
    from safecl.backbone.settings import EMBEDDED, BackboneSettings
    from safecl.methods.sizes import measure

    network = load_backbone(BackboneSettings(name=backbone, weights=None if backbone == EMBEDDED else "random"))
    found = {name: measure(load(name).method, network, SESSIONS, CLASSES) for name in method_settings()}
    return {name: [f"{each.learnable:,}", f"{each.kept:,}"] for name, each in found.items()}

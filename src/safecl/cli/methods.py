"""What ``safecl methods`` says. Without a backbone nothing heavy is imported: it answers at once."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from safecl.cli.terminal import Column, print_table
from safecl.experiments.config import load
from safecl.methods.catalog import method_settings

SESSIONS, CLASSES = 10, 10  # what sizes are measured after


def print_methods(backbone: str | None, console: Console) -> None:
    """A line for each method; with a backbone, also what it trains on that and how many bytes it keeps."""
    sizes = measured(backbone) if backbone is not None else {}
    columns = [Column("method"), Column("kind"), Column("protocols", folds=True)]
    columns += [Column("learnable", right=True), Column("bytes kept", right=True)] if sizes else []
    columns += [Column("kept between sessions", folds=True)]
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
    print_table(console, "Methods", columns, rows, drop=["protocols", "kind"], caption=caption)
    grid = Table.grid(padding=(0, 2, 0, 0))
    for name, kind in method_settings().items():
        grid.add_row(Text(name), Text(f"{kind.title}. {kind.paper[0].upper()}{kind.paper[1:]}."))
    console.print()
    console.print(grid)


def measured(backbone: str) -> dict[str, list[str]]:
    """Learnable numbers and bytes kept, by method. No weights are fetched: sizes do not depend on them."""
    from safecl.backbone.load import load_backbone
    from safecl.backbone.settings import EMBEDDED, BackboneSettings
    from safecl.methods.sizes import measure

    network = load_backbone(BackboneSettings(name=backbone, weights=None if backbone == EMBEDDED else "random"))
    found = {name: measure(load(name).method, network, SESSIONS, CLASSES) for name in method_settings()}
    return {name: [f"{each.learnable:,}", f"{each.kept:,}"] for name, each in found.items()}

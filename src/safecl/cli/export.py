"""``safecl export`` and ``push``: a model for other programs and other people."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from safecl.classifier.store import ModelFile
from safecl.cli.models import ModelArgument, Out
from safecl.cli.terminal import Force, say
from safecl.errors import SafeclError
from safecl.lines import counted
from safecl.outputs import check_output


def export(
    model: ModelArgument,
    out: Out,
    form: Annotated[Literal["onnx"], typer.Option("--format", "-f", help="The form.")] = "onnx",
    precision: Annotated[
        Literal["fp32", "fp16", "int8"], typer.Option(help="Of the weights in an ONNX file.")
    ] = "fp32",
    learner: Annotated[str | None, typer.Option(help="slow, fast or safe: whose answers; the model's own.")] = None,
    pictures: Annotated[str | None, typer.Option(help="A folder of pictures to compare answers on.")] = None,
    force: Force = False,
) -> None:
    """Write a model for other programs: an ONNX file that prepares pictures and answers as the model does.

    Example:  safecl export pets.safecl -o pets.onnx --pictures photos   then   safecl predict new -m pets.onnx
    """
    ModelFile(model)
    check_suffix(out, form)
    check_output(out, form, force)
    from safecl.classifier.data import unlabelled
    from safecl.classifier.export import export_onnx
    from safecl.classifier.model import Model

    judged = None if pictures is None else unlabelled(pictures)
    check = export_onnx(Model.open(model), out, precision, learner, judged, force=force)
    what = "drawn picture" if pictures is None else "picture"
    say(
        f"{out}: {check.bytes / 1e6:.1f} MB. {100 * check.agreement:.1f} % of the answers to "
        f"{counted(check.pictures, what)} are the model's; probabilities differ by at most {check.difference:.1g}."
    )


def check_suffix(out: Path, form: str) -> None:
    """Refuse a name that another kind of file has."""
    suffix = ".onnx" if form == "onnx" else ".safetensors"
    if out.suffix.lower() != suffix:
        raise SafeclError(f"Give the {form} file a name that ends in {suffix}, such as {out.stem or 'pets'}{suffix}.")


def add_commands(app: typer.Typer) -> None:
    """The commands of this file."""
    app.command()(export)

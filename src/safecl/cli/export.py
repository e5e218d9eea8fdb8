"""``safecl export``, ``push`` and ``pull``: a model for other programs and other people."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from safecl.cli.models import ModelArgument, Out, opened
from safecl.cli.terminal import Force, at_work, say
from safecl.errors import SafeclError
from safecl.lines import counted, naming
from safecl.outputs import check_output, real

FORMATS = "onnx: pictures to answers; safetensors: all weights; timm: one tuned network."
Precision: TypeAlias = Literal["fp32", "fp16", "int8"]


def export(
    model: ModelArgument,
    out: Out,
    form: Annotated[
        Literal["onnx", "safetensors", "timm"], typer.Option("--format", "-f", help=FORMATS)
    ] = "onnx",
    precision: Annotated[
        Precision | None, typer.Option(help="Of an ONNX file; fp32 if not given.")
    ] = None,
    learner: Annotated[
        str | None, typer.Option(help="slow, fast or safe: whose answers; the model's own.")
    ] = None,
    pictures: Annotated[
        str | None, typer.Option(help="A folder of pictures to compare answers on.")
    ] = None,
    force: Force = False,
) -> None:
    """Write a model for other programs: an ONNX file that prepares pictures and answers as the
    model does; or weights.

    Example:  safecl export pets.safecl -o pets.onnx --pictures photos   then   safecl predict new
    -m pets.onnx
    """
    file = opened(model)
    suffix = ".onnx" if form == "onnx" else ".safetensors"
    place = real(out)
    if place.suffix.lower() != suffix:
        raise SafeclError(
            "command.export.suffix", form=form, suffix=suffix, stem=place.stem or "pets"
        )
    if pictures is not None and not Path(pictures).expanduser().exists():
        raise SafeclError("command.export.no-folder", pictures=pictures)
    check_output(out, "onnx" if form == "onnx" else "safetensors", force)
    given = {
        "--precision": precision,
        "--pictures": pictures,
        "--learner": learner if form == "safetensors" else None,
    }
    for option, value in given.items():
        if form != "onnx" and value is not None:
            raise SafeclError("command.export.option-idle", option=option, form=form)
    from safecl.classifier.model import Model

    whole = Model.open(file)
    if form == "onnx":
        from safecl.classifier.answers.export import export_onnx
        from safecl.classifier.data import unlabelled

        judged = None if pictures is None else unlabelled(pictures)
        with at_work(f"Writing {out}, and comparing its answers"):
            check = export_onnx(whole, out, precision or "fp32", learner, judged, force=force)
        what = counted(check.pictures, "drawn picture" if pictures is None else "picture")
        other = f" (not: {naming(check.otherwise)})" * bool(check.otherwise)
        same = f"{100 * check.agreement:.1f} % of the answers to {what} are the model's{other}"
        size = f"{out.stat().st_size / 1e6:.1f} MB"
        say(f"{out}: {size}. {same}; probabilities differ by at most {check.difference:.1g}.")
        return
    from safecl.classifier.answers.weights import export_safetensors, export_timm

    if form == "timm":
        near = export_timm(whole, out, learner, force=force)
        say(
            f"{out}: timm.create_model('{whole.header['backbone']['name']}') gives its features,"
            f" to {near:.1g}."
        )
    else:
        say(f"{out}: {export_safetensors(whole, out, force=force) / 1e6:.1f} MB.")


def push(
    model: Annotated[
        Path, typer.Argument(metavar="FILE", help="A model, or what was exported of one.")
    ],
    repo: Annotated[str, typer.Argument(metavar="REPO", help="USER/NAME on the Hugging Face hub.")],
    private: Annotated[
        bool, typer.Option("--private", help="If the repository is made: for you alone.")
    ] = False,
) -> None:
    """Put a model and its card on the Hugging Face hub; HF_ENDPOINT names another hub.

    Example:  safecl push pets.onnx me/pets
    """
    from safecl.classifier.answers.hub import push as put

    say(put(model.expanduser(), repo, private=private))


def pull(
    source: Annotated[
        str, typer.Argument(metavar="hf:USER/NAME", help="On the Hugging Face hub; /FILE: of many.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file; its own name here if not given.")
    ] = None,
    revision: Annotated[
        str | None, typer.Option(help="A branch, tag or commit; the newest if not given.")
    ] = None,
    force: Force = False,
) -> None:
    """Fetch a model from the Hugging Face hub; HF_ENDPOINT names another hub. No pickle is read.

    Example:  safecl pull hf:me/pets   then   safecl learn photos --model pets.safecl
    """
    from safecl.classifier.answers.hub import pull as get

    place, told = get(source, out, revision=revision, force=force)
    say(f"{place}: {told}.")

"""``safecl watch``: a folder by which a model is taught and asked while the command runs."""

import os
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from safecl.cli.models import Device, ModelOption, Unknown
from safecl.cli.terminal import Quiet, say
from safecl.errors import Stopped

if TYPE_CHECKING:
    from safecl.classifier.teach import Lesson
    from safecl.runtime.answer import Answer

STEP = 0.2  # seconds after which a signal is noticed


def watch(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to watch.")],
    model: ModelOption,
    sure: Annotated[
        float,
        typer.Option(min=0, max=1, help="The probability from which an answer is trusted."),
    ] = 0.8,
    unknown: Unknown = 0.05,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 3.0,
    once: Annotated[
        bool, typer.Option("--once", help="End when all that is there is done, as for cron.")
    ] = False,
    form: Annotated[
        Literal["table", "jsonl", "csv"], typer.Option("--format", "-f", help="Of the answers.")
    ] = "table",
    device: Device = "auto",
    mqtt: Annotated[
        str | None,
        typer.Option(
            envvar="SAFECL_MQTT",
            metavar="URL",
            help="A broker: answers Frigate's snapshots, tells Home Assistant.",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Learn the class folders of DIR as they appear, and answer the pictures in DIR/inbox.

    What is answered moves to DIR/sorted/CLASS; what is unsure or unknown, to DIR/queue. Move
    pictures from there into a class folder, DIR/CLASS, and they are learned, or corrected. It may
    be stopped at any time. Example:  safecl watch nursery --model plants.safecl
    """
    from safecl.cli.answer_words import lesson_lines, printer
    from safecl.engine.progress import make_progress
    from safecl.engine.stop import stoppable
    from safecl.serve.watch import Told, Watch

    aside = form != "table"  # what is no answer, where a program reads them
    answered = printer(form)

    def learned(lesson: "Lesson", known: int) -> None:
        for line in lesson_lines(lesson, known, model):
            say(line, err=aside)

    def tell(path: str, answer: "Answer") -> None:
        answered(path, answer)
        if broker is not None:
            broker.answered(path, answer)

    def warn(text: str) -> None:
        say(text, err=True)

    watching = Watch(
        folder,
        model,
        Told(warn, tell, learned),
        sure=sure,
        unknown=unknown,
        device=device,
        progress=make_progress("quiet" if quiet or aside else "auto"),
    )
    broker = None
    if mqtt is not None:
        from safecl.serve.mqtt import Mqtt

        broker = Mqtt(mqtt, folder, lambda: watching.classes, warn)
    with watching.held(), stoppable() as stop, broker or nullcontext():
        watching.look()
        if not once:
            say(f"Watching {os.fspath(folder)}; Ctrl-C stops.", err=aside)
        while not stop():
            ends = time.monotonic() + every
            while not stop() and (left := ends - time.monotonic()) > 0:
                time.sleep(min(STEP, left))
            if not stop() and not watching.look() and once:
                return
    raise Stopped

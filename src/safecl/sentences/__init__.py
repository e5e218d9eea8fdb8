"""Every sentence of an error, by its code. The fields between braces are those of the error."""

from safecl.sentences import (
    answers,
    commands,
    data,
    libraries,
    models,
    networks,
    runs,
    service,
    settings,
)

SENTENCES: dict[str, str] = {
    **libraries.TABLE,
    **settings.TABLE,
    **networks.TABLE,
    **data.TABLE,
    **runs.TABLE,
    **models.TABLE,
    **answers.TABLE,
    **service.TABLE,
    **commands.TABLE,
}

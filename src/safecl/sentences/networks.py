"""Backbones and PETs: the sentence of each code."""

TABLE = {
    "backbone.pictures.shape": (
        "{name} takes pictures in [0, 1] of shape (N, 3, {size}, {size}), not {given}; resize them,"
        " or set backbone.image_size=SIDE."
    ),
    "backbone.weights.metadata": "The metadata of the weight file {file} cannot be read ({error}).",
    "backbone.size.patches": (
        "backbone.image_size={size} cannot be cut into patches of {patch} pixels; try {fitting}."
    ),
    "backbone.weights.not-finite": (
        "{source} holds NaN or infinite weights, first in {key!r}: fetch or export it again."
    ),
    "backbone.weights.missing": (
        "The weight file {file} does not exist; give backbone.weights an existing file."
    ),
    "backbone.weights.suffix": "{file} is no weight file this can read; it must end in {suffixes}.",
    "backbone.name.unknown": "There is no backbone {name!r}; choose one of {choices}{hint}.",
    "backbone.auto.unasked": (
        "backbone={name} is chosen by the first pictures of a model (safecl learn --backbone auto);"
        " here name a backbone: safecl backbones lists them."
    ),
    "backbone.auto.weights": (
        "backbone.weights={file} means nothing beside backbone=auto; give the file as"
        " backbone=auto:{file}."
    ),
    "backbone.auto.few": (
        "{pictures} pictures that have another one of their class are too few to choose a backbone"
        " by: {least} of two classes are needed; name a backbone."
    ),
    "backbone.auto.prefer-idle": (
        "prefer={prefer} means nothing beside backbone={name}; omit it, or give backbone=auto."
    ),
    "backbone.auto.not-cached": (
        "The weights of {name} are not at hand, and backbone=auto downloads nothing; safecl"
        " backbones fetch {name} does."
    ),
    "backbone.fetch.inside": "The weights of {name} are inside the package already.",
    "backbone.fetch.nowhere": "The Hugging Face hub has no weights of {name}; give a local file.",
    "backbone.options.refused": "{name} does not take the options {options!s:.300}: {error}.",
    "backbone.network.unread": (
        "{name} gives no features of pictures ({error}); choose another timm network."
    ),
    "backbone.inserts.none": (
        "{name} takes no prompts beside its pictures; give this method a ViT, DeiT or DINOv2 with a"
        " CLS token."
    ),
    "backbone.size.fixed": (
        "{name} takes pictures of {fixed} pixels alone, not backbone.image_size={size}; leave that"
        " out."
    ),
    "backbone.size.refused": (
        "{name} does not take backbone.image_size={size} ({error}); leave that out, or try {own}."
    ),
    "ridge.layers.range": (
        "ridge.layers={layers}: of this backbone {depth} blocks or stages can be read; give"
        " ridge.layers={depth} or fewer."
    ),
    "ridge.patches.none": (
        "This backbone has no other summary of its last block to read; leave ridge.patches=true"
        " out."
    ),
    "backbone.weights.no-safetensors": (
        "The weight file {file} is damaged or no safetensors file ({error})."
    ),
    "backbone.weights.too-large": (
        "The weight file {file} is for another network: it has {gigabytes:,.1f} GB."
    ),
    "backbone.weights.more-than-weights": (
        "The weight file {file} is damaged or holds more than weights: it is not read."
    ),
    "backbone.weights.unreadable": (
        "The weight file {file} is damaged or for another network ({error})."
    ),
    "backbone.weights.no-dictionary": (
        "The weight file {file} holds a {kind} where a dictionary of weights by name is needed."
    ),
    "backbone.weights.other-network": "The weight file {file} is for another network ({error}).",
    "backbone.weights.lacking": "The weight file {file} lacks {key!r}: it is for another network.",
    "backbone.weights.shape": (
        "The weight file {file} is for another network: its {key!r} is {there}, not {here}."
    ),
    "backbone.embedded.missing": (
        "The embedded weights are missing from the installation ({file}); install safecl again."
    ),
    "backbone.blocks.no-prefixes": (
        "Prefixes need the plain blocks and attention of timm's ViT; this backbone has {kind}."
    ),
    "backbone.weights.offline": (
        "The weights of {name} could not be fetched from the Hugging Face hub ({reason});"
        " its cache has {cached}; go online once, or give a local file as {setting}."
    ),
    "backbone.weights.offline.bare": (
        "The weights of {name} could not be fetched from the Hugging Face hub ({reason});"
        " its cache has {cached}; go online once."
    ),
    "pet.network.other": (
        "The PET {pet} does not go with {kind} of timm; choose one of {possible}."
    ),
    "pet.adapter.place": (
        "Beside its blocks alone an adapter can stand in {kind} of timm; leave pet.place={place}"
        " out."
    ),
    "pet.lora.projections": (
        "There is no key to change in {kind} of timm; leave pet.projections={projections} out."
    ),
    "pet.attention.other": (
        "This PET needs the plain attention of timm's ViT; this backbone has {kind}."
    ),
    "method.too-large": (
        "The method {name}, as it is set, would have more than {most:,} numbers of its own; lower"
        " its sizes."
    ),
    "ridge.memory": (
        "ridge.size={size} needs {needed:,.1f} GB of memory on {device}, where {free:,.1f} GB are"
        " free; {advice}."
    ),
    "features.not-finite": (
        "The backbone gave features that are not finite; check its weights, or use fp32."
    ),
    "backbone.name.idle": (
        "{weights} holds weights of {held}, so backbone={name} means nothing; omit it."
    ),
    "backbone.too-large": (
        "{source} has more than {most:,} numbers with the options {options!s:.300}: too many."
    ),
}

"""A model on this disk: what a path is, its config, and the files that hold its weights."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from llmlesson.errors import LessonError
from llmlesson.files.model_files import check_config, read_json, what_is

WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
GIVE_A_FOLDER = "Give a folder with a Hugging Face model: config.json, tokenizer.json and safetensors."


def existing(name: str | Path) -> Path | None:
    """The file or folder of that name, if there is one. LessonError for what is no path, or may not be looked at."""
    try:
        path = Path(name).expanduser()
        return path if path.exists() else None
    except RuntimeError:
        raise LessonError(f"{str(name)!r} names the home folder of a user that is not known here.") from None
    except (OSError, ValueError) as error:  # too long, a null character, a folder that others may not enter
        reason = error.strerror if isinstance(error, OSError) else error
        shown = str(name) if len(str(name)) <= 80 else f"{str(name)[:77]}…"
        raise LessonError(f"{shown!r} can't be looked at ({reason}). Give the path of a folder.") from None


def read_config(folder: Path) -> dict[str, Any]:
    """The checked config.json of a model's folder. LessonError that says what the folder is, if it isn't one."""
    path = folder / "config.json"
    config = read_json(path)
    if not config:
        raise LessonError(what_folder(folder))
    check_config(config, str(path))
    return config


def what_file(path: Path) -> str:
    """Says what a path is that exists and is no folder, and what to give in its place."""
    if not path.is_file():
        return f"{path} is a pipe or a device. {GIVE_A_FOLDER}"
    if path.suffix == ".safetensors" and what_is(path) == "":
        if (path.parent / "config.json").is_file():
            return f"{path} is one file of a model. Give its folder: {path.parent.absolute()}"
        return f"{path} contains weights, but there is no config.json next to it. {GIVE_A_FOLDER}"
    if what_is(path) == "it is a GGUF file." or path.suffix == ".gguf":
        return f"{path} is a GGUF file. {how_to_convert(path)}"
    if path.name == "config.json":
        return f"{path} is one file of a model. Give its folder: {path.parent.absolute()}"
    if path.suffix in (".bin", ".pt", ".pth", ".ckpt", ".pkl"):
        return f"{path} is a pickle, which can run any code when opened, so only safetensors are read. {GIVE_A_FOLDER}"
    known = what_is(path)
    return f"{path} is a file{': ' + known if known else '.'} {GIVE_A_FOLDER}"


def how_to_convert(gguf: Path) -> str:
    """The way from a GGUF file to a folder that loads."""
    return (
        "transformers can turn it into a folder, for the model types that it knows:\n"
        "  from transformers import AutoModelForCausalLM, AutoTokenizer\n"
        f"  for kind in (AutoModelForCausalLM, AutoTokenizer):\n"
        f"      kind.from_pretrained({str(gguf.parent)!r}, gguf_file={gguf.name!r}).save_pretrained('converted')\n"
        "and then give 'converted'."
    )


def what_folder(folder: Path) -> str:
    """Says what a folder without a config.json is, and what to give in its place."""
    has = f"{folder} has no config.json: it is not a Hugging Face model folder"
    if (folder / "adapter_config.json").is_file():
        try:
            base = read_json(folder / "adapter_config.json").get("base_model_name_or_path")
        except LessonError:
            base = None
        return (
            f"{folder} holds a LoRA adapter{f' for {base!r}' if isinstance(base, str) else ''}, not a whole model. "
            "Merge it into its model with peft (merge_and_unload, then save_pretrained) and give the merged folder."
        )
    if (folder / "snapshots").is_dir():
        snapshots = sorted(path for path in (folder / "snapshots").iterdir() if (path / "config.json").is_file())
        name = folder.name.removeprefix("models--").replace("--", "/")
        instead = f"or the folder of a snapshot: {snapshots[-1]}" if snapshots else "which fetches what is missing"
        return f"{folder} is the hub's cache of {name!r}, not the model itself. Give the id {name!r}, {instead}"
    cached = sorted(path.name.removeprefix("models--").replace("--", "/") for path in folder.glob("models--*--*"))
    if not cached and (folder / "hub").is_dir():
        cached = sorted(path.name.removeprefix("models--").replace("--", "/") for path in folder.glob("hub/models--*"))
    if cached:
        models = "1 model" if len(cached) == 1 else f"{len(cached)} models"
        return f"{folder} is the hub's cache of {models}. Give the id of one: {', '.join(cached[:5])}"
    if in_cache := _part_of_the_cache(folder):
        return f"{folder} has no config.json.{in_cache}"
    ggufs = sorted(folder.glob("*.gguf"))
    if ggufs:
        return f"{has}, but it holds the GGUF file {ggufs[0].name}. {how_to_convert(ggufs[0])}"
    if (folder / "model_index.json").is_file():
        return f"{has}, but a pipeline of diffusers, which makes pictures. {GIVE_A_FOLDER}"
    inside = sorted(path.parent.name for path in folder.glob("*/config.json"))
    if inside:
        return f"{has}. There is one in it: {folder / inside[0]}"
    return f"{has}. {GIVE_A_FOLDER}"


def _part_of_the_cache(folder: Path) -> str:
    """What to give in place of a snapshot in the hub's cache that is not whole; empty for other folders."""
    ids = [parent.name.removeprefix("models--").replace("--", "/") for parent in folder.absolute().parents[:2]]
    known = [name for name, parent in zip(ids, folder.absolute().parents, strict=False) if name != parent.name]
    return f" It is in the hub's cache: give the id {known[0]!r}, which fetches what is missing." if known else ""


def weight_files(folder: Path) -> tuple[list[Path], str]:
    """(The files that hold a model's weights, what to say about the choice). LessonError that names what is missing.

    As in transformers the one file `model.safetensors` comes first, then the shards that the index names.
    """
    whole, index = folder / WHOLE, folder / INDEX
    if whole.is_file():
        if not index.exists():
            return [whole], ""
        shards = shard_names(index)
        gone = sum(not (folder / name).is_file() for name in shards)
        return [whole], (
            f"{folder} holds {WHOLE} and an index of {len(shards)} shards, {gone or 'none'} of which "
            f"{'is' if gone == 1 else 'are'} missing. {WHOLE} is used; remove it to use the shards."
        )
    if index.exists():
        names = shard_names(index)
        missing = [name for name in names if not (folder / name).is_file()]
        if not missing:
            return [folder / name for name in names], ""
        shown = ", ".join(missing[:5]) + (" …" if len(missing) > 5 else "")
        raise LessonError(
            f"{folder} lacks {shown}, which {INDEX} names."
            f"{_part_of_the_cache(folder) or ' Get the model again, or the missing files.'}"
        )
    raise LessonError(f"{folder} lacks {WHOLE}.{_other_weights(folder)}")


def shard_names(index: Path) -> list[str]:
    """Names of the files that an index names. LessonError where it is malformed, or a name leads out of the folder."""
    table = read_json(index).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise LessonError(f"{index} needs a table 'weight_map' from names of tensors to files. Get the file again.")
    names = sorted({name if isinstance(name, str) else "" for name in table.values()})
    for name in names:
        path = PurePosixPath(name)
        if not path.parts or path.is_absolute() or ".." in path.parts or re.search(r"[\\:\0]", name):
            raise LessonError(
                f"{index} names {name[:80]!r}, which is not a file in the model's folder. Only files in it are read."
            )
    return names


def _other_weights(folder: Path) -> str:
    if shards := sorted(path.name for path in folder.glob("model-*-of-*.safetensors")):
        return f" It has {len(shards)} shards, but {INDEX}, which says what is in them, is missing too. Get that file."
    if others := sorted(path.name for path in folder.glob("*.bin")):
        return f" It has {', '.join(others[:3])}, but only safetensors can be read."
    if (folder / "adapter_model.safetensors").is_file():
        return f" {what_folder(folder)}"
    if ggufs := sorted(folder.glob("*.gguf")):
        return f" It has {ggufs[0].name}. {how_to_convert(ggufs[0])}"
    if others := sorted(path.name for path in folder.glob("*.safetensors")):
        return f" It has {', '.join(others[:3])}: rename the file that holds the whole model."
    return _part_of_the_cache(folder) or " Get the model again."

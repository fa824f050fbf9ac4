"""Command-line flags made from frozen configs, so that no option is written twice."""

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer
from rich.markup import escape

from ..forecasting.arguments import MOST_SEEDS

Seed = Annotated[
    int, typer.Option(min=0, max=MOST_SEEDS - 1, help="Seed of what is trained or drawn; of the first run.")
]
# "- `steps`, `batch_size`: how many …", up to the next entry or paragraph.
ENTRY = re.compile(r"^- ((?:`\w+`(?:, )?)+): (.+?)(?=\n- |\n\n|\Z)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[(`[^`]+`)\]\[[^\]]+\]")


def flags_from(*configs: type, explained_by: tuple[type, ...] = ()) -> Callable[[Callable], Callable]:
    """Give a command one flag a field of each dataclass, and hand it the built configs by keyword.

    A field `batch_size` becomes `--batch-size` with the field's type and default, and for help what the docstring of
    the config says of it, or of the classes in `explained_by`, to which it is handed on. A value that the config
    refuses ends the command with the config's own sentence and exit code 2.
    """
    words = explanations((*configs, *explained_by))

    def decorate(command: Callable) -> Callable:
        own = list(inspect.signature(command).parameters.values())
        names = {config.__name__: _parameter(own, config) for config in configs}
        kept = [p for p in own if p.name not in names.values()]
        fields = [field for config in configs for field in dataclasses.fields(config)]
        flags = [_flag(field, words.get(field.name, "")) for field in fields]

        @functools.wraps(command)
        def wrapped(**given: Any):
            built = {}
            for config in configs:
                values = {field.name: given.pop(field.name) for field in dataclasses.fields(config)}
                try:
                    built[names[config.__name__]] = config(**values)
                except ValueError as error:
                    raise typer.BadParameter(str(error)) from None
            return command(**given, **built)

        wrapped.__signature__ = inspect.Signature(kept + flags)  # type: ignore[attr-defined]
        del wrapped.__wrapped__  # type: ignore[attr-defined]
        return wrapped

    return decorate


def _parameter(parameters: list[inspect.Parameter], config: type) -> str:
    """The name of the command's parameter that is annotated with the config."""
    return next(p.name for p in parameters if p.annotation is config)


def explanations(classes: Iterable[type]) -> dict[str, str]:
    """The first sentence of each docstring entry "- `name`: …"; where several classes have one, that of the first."""
    found: dict[str, str] = {}
    for each in classes:
        for names, text in ENTRY.findall(inspect.getdoc(each) or ""):
            said = _first_sentence(text)
            for name in re.findall(r"\w+", names):
                found.setdefault(name, said)
    return found


def _first_sentence(text: str) -> str:
    plain = LINK.sub(r"\1", " ".join(text.split()))
    first = re.split(r"(?<=\.) ", plain)[0].rstrip(".")
    return f"{first[:1].upper()}{first[1:]}."


def _flag(field: dataclasses.Field, said: str) -> inspect.Parameter:
    option = typer.Option(help=escape(said), rich_help_panel="Setting")
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=field.default,
        annotation=Annotated[field.type, option],
    )

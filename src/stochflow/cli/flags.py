"""Command-line flags made from frozen configs, so that no option is written twice."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer


def flags_from(*configs: type) -> Callable[[Callable], Callable]:
    """Give a command one flag a field of each dataclass, and hand it the built configs by keyword.

    A field `batch_size` becomes `--batch-size` with the field's type and default. A value that the config
    refuses ends the command with the config's own sentence and exit code 2.
    """

    def decorate(command: Callable) -> Callable:
        own = list(inspect.signature(command).parameters.values())
        names = {config.__name__: _parameter(own, config) for config in configs}
        kept = [p for p in own if p.name not in names.values()]
        fields = [field for config in configs for field in dataclasses.fields(config)]
        flags = [_flag(field) for field in fields]

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


def _flag(field: dataclasses.Field) -> inspect.Parameter:
    option = typer.Option(help="", rich_help_panel="Setting")
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=field.default,
        annotation=Annotated[field.type, option],
    )

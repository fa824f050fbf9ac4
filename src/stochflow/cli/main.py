"""`stochflow`: the paper's tables, the demo, and a look into a run folder."""

import contextlib
import dataclasses
import errno
import json
import os
import sys
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import jax
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..experiments.lorenz import LorenzSetting
from ..experiments.missing import MissingSetting
from ..experiments.mocap import MocapSetting
from ..experiments.mocap_study import StudySetting
from ..training.checkpoint import CheckpointError, RunFolder, json_text, write_json
from ..training.config import FitConfig, LatentConfig, RunConfig
from .data import add_data_commands, print_card
from .distill import register as register_distill
from .flags import Seed, flags_from
from .out import writable
from .screen import as_text, console, printable

app = typer.Typer(
    help="Learn the transition law of a stochastic process; sample any gap in one step.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
reproduce = typer.Typer(help="The paper's tables, one command each.", no_args_is_help=True)
app.add_typer(reproduce, name="reproduce")
add_data_commands(app)
register_distill(app, reproduce)
# Between so many devices of the CPU batches are shared: one for each core of a small machine.
DEVICES = 2
INTERRUPTED = 130
# Errors of a disk that takes no more.
FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)

Out = Annotated[
    Path, typer.Option(help="Folder for checkpoints, figures, JSON and the report.", callback=writable)
]
Only = Annotated[
    list[str] | None,
    typer.Option(help="Rows to run, such as 'λ = 1'; give it again for more; all by default."),
]
Seeds = Annotated[int, typer.Option(min=1, help="How many training runs, with seeds one after another.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the figures as JSON and nothing else.")]


def main() -> None:
    """The command, with one-sentence errors and exit codes: 0 done, 1 could not, 2 wrong usage, 130 interrupted."""
    _use_two_devices()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            app()
    except SystemExit as stop:  # typer has turned Ctrl-C into the exit code that shells know
        if stop.code == INTERRUPTED:
            _leave_interrupted()
        raise
    except (CheckpointError, ValueError, OSError, ImportError, FloatingPointError) as error:
        _say(error)
        sys.exit(1)
    except MemoryError:
        _say(
            MemoryError(
                "there is not enough memory for that: ask for fewer samples, times or series at once."
            )
        )
        sys.exit(1)
    except KeyboardInterrupt:
        _leave_interrupted()


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """One sentence as well, without the line of code that it comes from."""
    said = f"[yellow]warning:[/] {escape(str(message))}"
    Console(stderr=True, emoji=False).print(said, highlight=False, soft_wrap=True)


def _leave_interrupted() -> None:
    """At once: XLA may still be at work on what was interrupted, and would crash while Python is taken apart."""
    said = "interrupted; run the same command again to go on from the last checkpoint, if there was one."
    Console(stderr=True).print(said, highlight=False)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(INTERRUPTED)


def _say(error: Exception) -> None:
    """One sentence as it stands: brackets are no markup, and a terminal may break the line where it likes."""
    said = str(error)
    if isinstance(error, OSError) and error.errno in FULL:
        reason = (error.strerror or said).partition(";")[0]
        said = (
            f"{reason}, while {error.filename or 'a file'} was written: make room, or choose another --out."
        )
    elif isinstance(error, OSError) and error.filename is not None:  # without the number of the error
        said = f"{error.filename}: {error.strerror}."
    Console(stderr=True, emoji=False).print(f"[red]error:[/] {escape(said)}", highlight=False, soft_wrap=True)


def _use_two_devices() -> None:
    """Let training share its batches between two devices of the CPU, whatever the machine: numbers depend on it."""
    chosen = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if chosen or "JAX_NUM_CPU_DEVICES" in os.environ:
        return
    with contextlib.suppress(RuntimeError):  # too late: something has been computed
        jax.config.update("jax_num_cpu_devices", DEVICES)


@app.command()
def version() -> None:
    """Print the version."""
    from .. import __version__

    print(__version__)


@app.command()
def info(
    path: Annotated[Path, typer.Argument(help="A model file or a run folder.")], as_json: AsJson = False
) -> None:
    """What a model file says of itself, or a run folder of its settings and how far it got."""
    if not path.exists():
        raise ValueError(f"there is no file or folder {path}.")
    if path.is_file() or (path / "model.json").is_file():
        _about_file(path, as_json)
        return
    folder = path
    run = RunFolder.open(folder)
    record, rows = run.read_config(), run.read_metrics()
    if as_json:
        print(json_text({"record": record, "last": rows[-1] if rows else None}))
        return
    table = Table("setting", "value", title=escape(str(folder)))
    for name, value in record["config"].items():
        table.add_row(as_text(name), as_text(value))
    console.print(table)
    if rows:
        said = ", ".join(f"{name} {value:.6g}" for name, value in rows[-1].items())
        console.print(f"last report: {said}", markup=False)


def _about_file(path: Path, as_json: bool) -> None:
    from ..io import peek

    manifest = peek(path)
    if as_json:
        print(json_text(manifest))
    elif isinstance(manifest.get("card"), dict):
        print_card(manifest["card"])
    else:
        console.print_json(printable(json.dumps(manifest, ensure_ascii=False)))


@app.command()
def demo(out: Out = Path("runs/demo"), seed: Seed = 0) -> None:
    """Train on the stochastic Lorenz system in a few minutes; print the paper's table beside ours."""
    _lorenz(LorenzSetting.quick(), out, seed, seeds=1, as_json=False)


@reproduce.command("lorenz")
@flags_from(LorenzSetting, explained_by=(FitConfig, RunConfig))
def lorenz(
    context: typer.Context,
    setting: LorenzSetting,
    out: Out = Path("runs/lorenz"),
    seed: Seed = 0,
    seeds: Seeds = 1,
    quick: Annotated[
        bool,
        typer.Option(
            help="Somewhat more than half of the training and fewer test pairs: what the demo runs."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Table 1: KL per time and H_pred, likelihood per lag, calibration, consistency; figures and a report."""
    if quick:
        given = [f.name for f in dataclasses.fields(setting) if _was_given(context, f.name)]
        kept = {name: getattr(setting, name) for name in given}
        setting = dataclasses.replace(LorenzSetting.quick(), **kept)
    _lorenz(setting, out, seed, seeds, as_json)


def _rows_to_run(only: list[str] | None, known: Iterable[str]) -> list[str]:
    """The rows of a study that were asked for, or all; an unknown one ends the command."""
    known = list(known)
    if strangers := [name for name in only or [] if name not in known]:
        raise typer.BadParameter(f"no row {strangers[0]!r}; the rows are {'; '.join(known)}.")
    return only or known


def _was_given(context: typer.Context, name: str) -> bool:
    """Whether a flag stands on the command line, be it with the default value."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _lorenz(setting: LorenzSetting, out: Path, seed: int, seeds: int, as_json: bool) -> None:
    from ..experiments import lorenz as experiment, lorenz_report as report
    from ..experiments.lorenz_scores import score_lorenz

    collected = []
    for number in range(seed, seed + seeds):
        folder = out if seeds == 1 else out / f"seed{number}"
        begin = time.monotonic()
        result = experiment.train_lorenz(
            setting, seed=number, folder=folder, progress=False if as_json else None
        )
        train_seconds = result.history[-1]["seconds"]
        scores = score_lorenz(result.flow, setting, seed=number)
        content = report.scores_json(scores, setting, {"seed": number, "train_seconds": train_seconds})
        write_json(folder / "scores.json", content)
        page = report.write_lorenz_report(folder, result, scores, setting, seed=number)
        collected.append(content)
        if not as_json:
            _print_tables(scores, report, number, train_seconds)
            console.print(
                f"figures: {folder / 'figures'}   report: {page}   figures as JSON: {folder / 'scores.json'}",
                markup=False,
            )
            console.print(f"all in {time.monotonic() - begin:.0f} s")
    if as_json:
        print(json_text(collected if seeds > 1 else collected[0]))


@reproduce.command("lorenz-missing")
@flags_from(MissingSetting, explained_by=(FitConfig, RunConfig))
def lorenz_missing(
    missing: MissingSetting,
    out: Out = Path("runs/lorenz-missing"),
    seed: Seed = 0,
    only: Only = None,
    as_json: AsJson = False,
) -> None:
    """F.1: paths of which 20 frames in a row are seen; KL with and without the consistency loss."""
    import jax.random as jr

    from ..experiments import missing as study
    from ..experiments.common import merge_study, read_study

    known = study.cases()
    chosen = _rows_to_run(only, known)
    scores, path = [], out / f"scores-seed{seed}.json"
    read_study(path)  # which refuses a file that is not ours, before anything is trained
    for number, name in enumerate(chosen):
        folder = out / f"seed{seed}-{list(known).index(name)}"
        result = study.train_missing(
            known[name], missing, seed=seed, folder=folder, progress=False if as_json else None
        )
        scores.append(study.score_missing(result, known[name], missing, key=jr.key(seed)))
        write_json(path, merge_study(read_study(path), scores, known))
        if not as_json:
            _print_table(f"KL, {number + 1} of {len(chosen)} rows", study.missing_rows(scores))
    if not as_json:
        other = study.missing_rows(scores, reading="_shared_bandwidth")
        _print_table("The same with one bandwidth, that of the truth", other)
    if as_json:
        print(json_text(scores))


@reproduce.command("mocap")
@flags_from(MocapSetting, explained_by=(LatentConfig, RunConfig))
def mocap(
    setting: MocapSetting,
    out: Out = Path("runs/mocap"),
    seed: Seed = 0,
    seeds: Seeds = 1,
    as_json: AsJson = False,
) -> None:
    """Motion capture, set-up 1 or 2: test MSE beside the paper's table, scores and coverage."""
    import jax.random as jr

    from ..experiments import mocap as experiment, mocap_scores as table

    path = out / f"scores-setup{setting.setup}.json"
    kept = table.read_other_rows(path, setting, range(seed, seed + seeds))
    data, scores, rows = experiment.load_mocap(), [], []
    for number in range(seed, seed + seeds):
        folder = out / f"setup{setting.setup}-seed{number}"
        show = False if as_json else None
        result = experiment.train_mocap(setting, seed=number, data=data, folder=folder, progress=show)
        scores.append(table.score_mocap(result.flow, setting, data=data, key=jr.key(number)))
        about = {"seed": number, "train_seconds": result.seconds}
        rows.append({"setting": dataclasses.asdict(setting)} | about | dataclasses.asdict(scores[-1]))
        write_json(path, sorted([*kept, *rows], key=lambda row: row["seed"]))
        if not as_json:
            _print_table(f"{number - seed + 1} of {seeds} seeds", table.mocap_rows(scores, setting.setup))
            _print_table("Forecasts with their noise", table.quality_rows(scores))
    if as_json:
        print(json_text(rows))
        return
    from ..experiments.mocap_report import write_mocap_report

    page = write_mocap_report(
        out / f"setup{setting.setup}",
        result.flow,
        setting,
        scores,
        data,
        seconds=result.seconds,
        key=jr.key(seed),
    )
    console.print(f"figures, animation and report: [bold]{escape(str(page))}[/]")


@reproduce.command("mocap-study")
@flags_from(StudySetting)
def mocap_study(
    setting: StudySetting,
    out: Out = Path("runs/mocap-study"),
    seed: Seed = 0,
    only: Only = None,
    as_json: AsJson = False,
) -> None:
    """F.2: motion capture, set-up 2, by the weight, the direction and the inner steps of the flow loss."""
    import jax.random as jr

    from ..experiments import mocap_study as study
    from ..experiments.common import merge_study, read_study
    from ..experiments.mocap import load_mocap

    known = study.cases()
    chosen = _rows_to_run(only, known)
    path = out / f"scores-seed{seed}.json"
    read_study(path)  # which refuses a file that is not ours, before anything is trained
    data, scores = load_mocap(), []
    for name in chosen:
        result = study.train_case(
            known[name],
            setting,
            seed=seed,
            data=data,
            folder=out / f"seed{seed}-{list(known).index(name)}",
            progress=False if as_json else None,
        )
        scores.append(study.score_case(result, known[name], setting, seed=seed, data=data, key=jr.key(seed)))
        write_json(path, merge_study(read_study(path), scores, known))
        if not as_json:
            _print_table(f"Test MSE, {len(scores)} of {len(chosen)} rows", study.study_rows(scores))
    if as_json:
        print(json_text(scores))


@reproduce.command("four-laws")
def four_laws(seed: Seed = 0, as_json: AsJson = False) -> None:
    """Four laws that are known exactly, learnt from samples: nats short of the truth."""
    from ..experiments import four_laws as study

    verdicts = {}
    for name, known in study.known_laws().items():
        verdicts[name] = study.learn(known, seed=seed, progress=False if as_json else None)
    if as_json:
        print(json_text({name: dataclasses.asdict(verdict) for name, verdict in verdicts.items()}))
    else:
        _print_table(f"Nats short of the exact law (seed {seed})", study.verdict_rows(verdicts))


def _print_table(title: str, content) -> None:
    headers, rows = content
    table = Table(*headers, title=title)
    for row in rows:
        table.add_row(*row, style="bold" if row[0].startswith("stochflow") else None)
    console.print(table)


def _print_tables(scores, report, seed: int, train_seconds: float) -> None:
    titles = {
        f"Table 1, KL (seed {seed}, trained {train_seconds:.0f} s)": report.kl_rows(scores),
        "The same with one bandwidth, that of the truth": report.shared_kl_rows(scores),
        "Test log-likelihood, nats, standardised": report.likelihood_rows(scores),
        "Coverage of highest-density regions": report.calibration_rows(scores),
        "Consistency error (energy distance)": report.consistency_rows(scores),
    }
    for title, content in titles.items():
        _print_table(title, content)
    console.print(
        "± of a KL is the spread of its ten folds. At t = 1 a few far points sway it, of two true samples too: there "
        "the table with one bandwidth says more."
    )
    readings = {"": (scores.kl, scores.floor), ", one bandwidth": (scores.kl_shared, scores.floor_shared)}
    for reading, table in readings.items():
        beyond = ", ".join(report.beyond_floor(*table)) or "none"
        console.print(f"KL cells more than one std of the floor above it{reading}: {beyond}")
        beyond = ", ".join(report.beyond_floor(*table, both=True)) or "none"
        console.print(f"KL cells more than one std of the difference above it{reading}: {beyond}")

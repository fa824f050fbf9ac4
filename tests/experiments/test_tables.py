"""The tables are complete and the paper's numbers are the paper's."""

import dataclasses
import json
from pathlib import Path

import jax.random as jr
import numpy as np
import pytest

from stochflow.data.lorenz import lorenz_trajectories, random_segments
from stochflow.experiments import paper
from stochflow.experiments.common import open_stages
from stochflow.experiments.lorenz import LorenzSetting
from stochflow.experiments.missing import MissingSetting, cases, missing_rows
from stochflow.experiments.mocap import MocapSetting
from stochflow.training import CheckpointError

RESULTS = Path(__file__).parents[2] / "results"


def test_every_case_of_the_missing_data_study_is_there():
    found = cases()
    assert {case.weight for case in found.values() if case.paper} == {0.0, 0.001, 0.01, 0.4, 0.8}
    assert [case.name for case in found.values() if not case.paper] == [
        "λ = 1, one way",
        "λ = 0, taught by its own series",
    ]
    assert {case.bridge_steps for case in found.values()} == {0, 1, 5}
    assert {(case.one_to_two, case.two_to_one) for case in found.values()} == {
        (True, True),
        (True, False),
        (False, True),
    }
    for case in found.values():
        data, loss = MissingSetting().fit_configs(case)
        assert (data.consistency, loss.consistency) == (0.0, case.weight)


@pytest.mark.parametrize(("reading", "mean"), [("", 2.0), ("_shared_bandwidth", 3.0)])
def test_the_study_is_a_row_a_case_and_the_floor(reading, mean):
    row = lambda mean: [{"mean": mean + i, "std": 0.5} for i in range(4)]
    score = {"case": {"name": "λ = 0", "paper": ((7.9, 0.2), (22.9, 1.8))}, "seconds": 12.3}
    score |= {"kl": {"1": row(2.0), "0.25": row(0.0)}, "floor": row(-1.0)}
    score |= {"kl_shared_bandwidth": {"1": row(3.0), "0.25": row(0.0)}, "floor_shared_bandwidth": row(-1.0)}
    headers, (found, floor) = missing_rows([score], reading=reading)
    one, far = f"{mean + 1:.2f} ± 0.50", f"{mean + 3:.2f} ± 0.50"
    assert found == ("λ = 0", "7.9 ± 0.2", "22.9 ± 1.8", one, far, "1.00 ± 0.50", "3.00 ± 0.50", "12")
    assert floor[3:7] == ("0.00 ± 0.50", "2.00 ± 0.50") * 2
    assert len(headers) == len(found) == len(floor)


def test_the_papers_numbers_have_a_cell_for_each_time():
    for rows in (paper.LORENZ_KL, paper.LORENZ_KFLOPS):
        assert all(len(cells) == len(paper.TIMES) for cells in rows.values())
    assert set(paper.NSF_ROW.values()) <= set(paper.LORENZ_KL)


def test_the_quick_setting_is_smaller():
    quick, whole = LorenzSetting.quick(), LorenzSetting()
    assert quick.steps < whole.steps
    assert quick.fit_config().steps == quick.steps


def test_segments_are_runs_of_consecutive_frames(getkey):
    data = lorenz_trajectories(16, key=getkey())
    parts = random_segments(data, 20, seed=0)
    assert parts.present.sum(1).tolist() == [20] * 16
    assert np.allclose(np.diff(parts.times, axis=1), 0.025, atol=1e-5)
    assert parts.longest_gap == pytest.approx(19 * 0.025)
    assert len(set(parts.origins.round(3))) > 3
    with pytest.raises(ValueError, match="`rows` must lie between 2 and 41; got 50"):
        random_segments(data, 50, seed=0)


def test_the_folder_of_another_seed_is_refused_by_its_own_name(tmp_path):
    stages = lambda seed: open_stages(
        tmp_path / "run", ("one", "two"), {"config": {"steps": 3}}, [jr.key(seed)]
    )
    run, folders = stages(0)
    assert folders == [run.path / "one", run.path / "two"]
    assert stages(0)[1] == folders
    with pytest.raises(
        CheckpointError, match=r"run holds another run: it was begun with another seed\. Give"
    ):
        stages(1)


@pytest.mark.parametrize(
    ("pattern", "setting"), [("lorenz-seed*", LorenzSetting), ("lorenz-missing-seed*", MissingSetting)]
)
def test_kept_results_say_all_of_their_settings(pattern, setting):
    """Or they were made by an older recipe."""
    kept = sorted(RESULTS.glob(f"{pattern}.json"))
    assert kept
    names = {field.name for field in dataclasses.fields(setting)}
    for path in kept:
        found = json.loads(path.read_text())
        for row in found if isinstance(found, list) else [found]:
            assert set(row["setting"]) == names


@pytest.mark.parametrize("setup", [1, 2])
def test_kept_results_of_motion_capture_are_those_of_the_recipe(setup):
    rows = json.loads((RESULTS / f"mocap-setup{setup}.json").read_text())
    assert [row["seed"] for row in rows] == list(range(5))
    for row in rows:
        assert row["setting"] == dataclasses.asdict(MocapSetting(setup=setup))


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda p: p.name)
def test_kept_results_are_valid_json(path):
    refuse = lambda name: pytest.fail(f"{name} is not JSON")
    assert json.loads(path.read_text(), parse_constant=refuse)

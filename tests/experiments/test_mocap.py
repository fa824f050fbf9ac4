"""The motion-capture experiment from end to end, on a few frames of made-up motion."""

import dataclasses
import json

import numpy as np
import pytest

from stochflow.data import Trajectories
from stochflow.experiments import mocap, mocap_scores, mocap_study
from stochflow.experiments.mocap_report import write_mocap_report
from stochflow.latent.model import number_of_parameters


def motion(series, frames, seed):
    rng = np.random.default_rng(seed)
    times = mocap.FRAME * np.arange(frames)
    phase = times[None, :, None] + rng.uniform(0, 6, (series, 1, 1)) + np.linspace(0, 3, mocap.CHANNELS)
    values = np.sin(phase) + 0.05 * rng.normal(size=phase.shape)
    values[:, :, 7] = 0.0  # a channel that never moves, as in the real data
    return Trajectories.from_arrays(times, values)


@pytest.fixture
def data():
    return {"train": motion(4, 24, 0), "validation": motion(2, 24, 1), "test": motion(2, 24, 2)}


@pytest.mark.parametrize(("setup", "flow", "bridge"), [(1, 8_454, 9_504), (2, 28_820, 10_452)])
def test_the_architecture_is_the_papers(setup, flow, bridge, getkey):
    model = mocap.paper_model(setup, key=getkey())
    assert (
        number_of_parameters(model.transition) == flow + mocap.STATE
    )  # and the rates of the saturating clock
    assert number_of_parameters(model.bridge) == bridge


@pytest.mark.slow
@pytest.mark.parametrize("parts", mocap.RECIPES)
def test_it_trains_scores_and_prints(parts, data, monkeypatch, tmp_path, getkey):
    monkeypatch.setitem(
        mocap.SETUPS,
        1,
        mocap.Setup(train_frames=20, given=3, window=3),
    )
    setting = mocap.MocapSetting(
        setup=1,
        parts=parts,
        slow=1 if parts == "principal" else 0,
        styles=2,
        harmonics=2,
        width=8,
        speeds=2,
        steps=20,
        taught_steps=0 if parts == "rhythm" else 10,
        taught_lag=8,
        one_way=4,
        log_every=10,
        samples=8,
        skip_starts=16,
        transitions=16,
        patience=5 if parts == "rhythm" else None,
    )
    result = mocap.train_mocap(setting, seed=0, data=data, folder=tmp_path, progress=False)
    if setting.patience:  # the weights that did best on the validation sequences are those that were kept
        reports = (tmp_path / "all" / "metrics.jsonl").read_text().splitlines()
        best = min(json.loads(line)["validation_loss"] for line in reports)
        kept = mocap.validation_loss(result.flow, data["validation"], 3)["loss"]
        assert kept == pytest.approx(best, rel=1e-4)
    scores = mocap_scores.score_mocap(result.flow, setting, data=data, key=getkey())
    assert list(scores.mse) == ["one step", "steps of 50", "steps of 10", "steps of 1"]
    assert all(np.isfinite(values).all() for values in scores.mse.values())
    assert len(scores.crps) == len(scores.energy) == mocap_scores.QUARTERS
    assert all(0 <= value <= 1 for values in scores.coverage.values() for value in values)
    json.dumps(dataclasses.asdict(scores))
    headers, rows = mocap_scores.mocap_rows([scores, scores], 1)
    assert len(headers) == 2
    assert rows[0] == ("paper: npODE", "22.96")
    assert rows[-4][0] == "stochflow: one step (2 seeds)"
    assert len(mocap_scores.quality_rows([scores])[1]) == 2 + len(mocap_scores.LEVELS)
    page = write_mocap_report(
        tmp_path / "report", result.flow, setting, [scores], data, seconds=result.seconds, key=getkey()
    )
    assert "steps of 50" in page.read_text()
    pictures = {f"fan-{i}.png" for i in range(2)} | {"cost.png", "phase.png", "walk.gif"}
    assert {path.name for path in page.parent.iterdir()} == pictures | {"report.html"}


def test_the_interval_of_a_mean_is_students():
    # t(0.975, 2) = 4.303; the standard error of 1, 2, 3 is 1 / sqrt(3)
    assert np.isclose(mocap_scores.t_interval([1.0, 2.0, 3.0]), 4.3027 / np.sqrt(3), atol=1e-4)
    assert np.isnan(mocap_scores.t_interval([1.0]))


def test_a_recipe_fills_in_what_is_not_given_and_no_more():
    setting = mocap.MocapSetting(setup=1, steps=40, log_every=20)
    assert (setting.parts, setting.steps, setting.slowest, setting.fastest) == ("rhythm", 40, 0.92, 1.05)
    assert mocap.MocapSetting(parts="principal").taught_steps == 5000
    with pytest.raises(ValueError, match="`parts` must be one of rhythm, principal, paper; got 'rhyme'"):
        mocap.MocapSetting(parts="rhyme")


def test_an_unknown_set_up_is_refused():
    with pytest.raises(ValueError, match="`setup` must be 1 or 2; got 3"):
        mocap.MocapSetting(setup=3)


@pytest.mark.parametrize("wrong", [{"speeds": 0}, {"slowest": 0.0}, {"slowest": 1.1, "fastest": 1.0}])
def test_speeds_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValueError, match="`speeds` must be at least 1 and 0 < `slowest` ≤ `fastest`"):
        mocap.MocapSetting(**wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"observation_std": 0.0}, r"`observation_std` must be greater than 0\.001; got 0\.0"),
        ({"styles": 99}, "`styles` must be at most 50, as there are channels; got 99"),
        ({"width": 0}, "`width` must be at least 1; got 0"),
        ({"consistency": 1.0}, "`consistency` must be 0 for a rhythm.*choose `parts` principal or paper"),
        ({"patience": 0}, "`patience` must be"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_their_own_names(wrong, message):
    with pytest.raises(ValueError, match=message):
        mocap.MocapSetting(**wrong)


def test_a_perfect_and_a_hopeless_forecast_are_told_apart():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(2, 8, 3))
    close, far = (truth[None] + offset + 0.1 * rng.normal(size=(50, 2, 8, 3)) for offset in (0.0, 5.0))
    good, bad = mocap_scores._probabilistic(truth, close), mocap_scores._probabilistic(truth, far)
    assert max(good[0]) < 0.1 < 4 < min(bad[0])
    assert max(good[1]) < 0.5 < 8 < min(bad[1])
    assert min(good[2]["0.95"]) > 0.8
    assert max(bad[2]["0.95"]) == 0


def test_scores_of_other_seeds_and_of_other_settings_are_kept(tmp_path):
    path, setting = tmp_path / "scores.json", mocap.MocapSetting(setup=2)
    assert mocap_scores.read_other_rows(path, setting, [0]) == []
    row = lambda seed, **changes: {
        "setting": dataclasses.asdict(dataclasses.replace(setting, **changes)),
        "seed": seed,
    }
    path.write_text(json.dumps([row(0), row(0, beta=0.5), row(1), row(2, beta=0.5), row(3)]))
    kept = mocap_scores.read_other_rows(path, setting, range(2))
    assert [(found["seed"], found["setting"]["beta"]) for found in kept] == [
        (0, 0.5),
        (2, 0.5),
        (3, setting.beta),
    ]


@pytest.mark.parametrize("content", ["", "5", "{", "{}", "[5]", '[{"seed": 3}]'])
def test_a_file_that_is_no_scores_is_not_taken_for_one(content, tmp_path):
    path = tmp_path / "scores.json"
    path.write_text(content)
    with pytest.raises(ValueError, match="holds no scores of this table, and is not overwritten"):
        mocap_scores.read_other_rows(path, mocap.MocapSetting(setup=2), [0])


def test_the_study_has_every_row_and_hands_its_losses_on():
    rows = mocap_study.cases()
    assert len(rows) == 1 + 7 + 2 + 4
    assert rows["λ = 0.03"].paper == "3.36 ± 0.25"
    one_way = mocap_study.StudySetting(steps=20).of(rows["λ = 1, 2→1 only"]).fit_config()
    assert (one_way.consistency, one_way.one_to_two, one_way.two_to_one, one_way.bridge_steps) == (
        1.0,
        0.0,
        1.0,
        3,
    )
    with pytest.raises(ValueError, match="`steps` must be at least 1; got 0"):
        mocap_study.StudySetting(steps=0)


@pytest.mark.slow
def test_a_row_of_the_study_trains_and_prints(data, monkeypatch, getkey):
    monkeypatch.setitem(mocap.SETUPS, 2, mocap.Setup(train_frames=20, given=10, window=5))
    setting = mocap_study.StudySetting(steps=4, consistency_batch=8, weights_warmup=0, samples=4)
    case = mocap_study.cases()["λ = 1, K = 1"]
    fit = mocap_study.train_case(case, setting, seed=0, data=data, progress=False)
    score = mocap_study.score_case(fit, case, setting, seed=0, data=data, key=getkey())
    headers, (row,) = mocap_study.study_rows([score])
    assert len(row) == len(headers)
    assert row[:2] == ("λ = 1, K = 1", "3.35 ± 0.39")
    assert np.isfinite(score["mse"]["one step"]).all()

"""Figures of a run, from the folders of its members alone."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import opjax
from opjax.learn.report import drawing, figures, figures_fields, figures_seeds
from opjax.learn.tasks import latents, outcome
from opjax.samples import Sample
from tests.selection import by_day

DRAWN = True  # tests/figures.py

PNG = b"\x89PNG\r\n\x1a\n"


def points(kind):
    if kind == "line":
        return np.linspace(0, 1, 9, dtype=np.float32)[::-1, None], (9,)
    x, y = np.meshgrid(np.linspace(0, 1, 6), np.linspace(0, 2, 5), indexing="ij")
    grid = np.stack([x.ravel(), y.ravel()], axis=1).astype(np.float32)
    return grid, (6, 5) if kind == "grid" else None


def write(folder, rng, *, name, seed, kind="grid", num_test=4, inspected=True):
    folder.mkdir(parents=True)
    config = {"models": [name], "seeds": [seed]}
    (folder / "config.json").write_text(json.dumps(config))
    rows = [
        {"epoch": e, "step": 2 * e, "train_loss": 4.0 / e, "learning_rate": 1e-3}
        | ({"validation": 1.0 / e} if e % 2 else {})
        for e in range(1, 6)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    mesh, shape = points(kind)
    errors = rng.uniform(0.1, 1, num_test)
    shown = outcome.rows(errors)
    target = np.sin(3 * mesh[:, :1])
    features = None if kind == "cloud" else target**2
    sample = Sample(mesh, target, features, grid_shape=shape)
    seen = {
        "layers": np.array([2]),
        "maps": rng.normal(size=(1, 2, 5, 5)),
        "basis": np.cos(mesh[None, :, :1] * np.arange(3)),
    }
    outcome.write(
        folder,
        errors=errors,
        rows=shown,
        samples=[sample] * len(shown),
        predicted=[target + 0.1] * len(shown),
        inspected=seen if inspected else None,
        extra={"series": rng.uniform(size=(num_test, 3)), "series_name": "step"}
        | ({"window": (0.0, 1.0, 0.0, 1.0)} if kind == "cloud" else {}),
    )
    if inspected and shape is not None:
        given = rng.normal(size=(3, 30, 6)), rng.normal(size=(30, 5))
        grid_shape = (30,) if kind == "line" else (6, 5)
        arrays = latents.compare(*given)
        np.savez(folder / latents.FILE, grid_shape=grid_shape, **arrays)
    return folder


def assert_small_pngs(folder):
    for path in folder.iterdir():
        content = path.read_bytes()
        assert content.startswith(PNG)
        assert len(content) < 3e5


@pytest.mark.parametrize("kind", by_day(["grid", "line", "cloud"], day=["cloud"]))
def test_a_member_gets_every_figure(kind, tmp_path, rng):
    folder = write(tmp_path / "a", rng, name="functional", seed=0, kind=kind)
    written = figures.draw(folder, figures.members(folder))
    missing = {"bases", "seeds", "quantities"} | (
        {"latents"} if kind == "cloud" else set()
    )
    assert [path.stem for path in written] == [
        name for name in figures.FIGURES if name not in missing
    ]
    assert sorted(written) == sorted((folder / "figures").iterdir())
    assert_small_pngs(folder / "figures")


@pytest.mark.nightly
def test_a_run_compares_models_on_the_same_samples(tmp_path, rng):
    for name, seed in (("b:c", 10), ("b:c", 2), ("a", 0)):
        folder = tmp_path / f"{name.replace(':', '_')}-{seed}"
        write(folder, rng, name=name, seed=seed, inspected=False)
    (tmp_path / "config.json").write_text(json.dumps({"models": ["b:c", "a"]}))
    members = figures.members(tmp_path)
    assert [(m.name, m.seed) for m in members] == [("b:c", 2), ("b:c", 10), ("a", 0)]
    written = figures.draw(tmp_path, members)
    assert [path.stem for path in written] == [
        *("fields", "curves", "errors", "series", "seeds")
    ]


def test_models_tested_on_other_meshes_are_not_drawn_beside_the_first(tmp_path, rng):
    for name, kind in (("a", "line"), ("b", "line"), ("c", "grid")):
        write(tmp_path / f"{name}-0", rng, name=name, seed=0, kind=kind)
    found = {name: outcome.read(tmp_path / f"{name}-0") for name in "abc"}
    figure = figures_fields.fields(found)
    legend = [text.get_text() for text in figure.axes[1].get_legend().texts]
    assert [text.split(":")[0] for text in legend] == ["truth", "a", "b"]


def test_bases_of_models_are_side_by_side(tmp_path, rng):
    for name in ("a", "b", "c"):
        folder = tmp_path / f"{name}-0"
        write(folder, rng, name=name, seed=0, kind="cloud", inspected=name != "c")
    members = [figures.member(tmp_path / f"{name}-0") for name in "abc"]
    figure = figures.bases(members)
    drawn = [axis for axis in figure.axes if axis.get_subplotspec() is not None]
    titles = [axis.get_title() for axis in drawn if axis.get_title()]
    assert len(titles) == 2 * (3 + 1)  # functions and the map of both
    assert titles[3] == titles[7] == "its map, 5 x 5"
    assert drawn[0].get_xlim() == (0, 1)  # the window
    assert drawn[0].get_ylabel() == "a\nlayer 3"
    assert figures.bases(members[1:]) is None


def test_seeds_are_a_median_and_a_range():
    losses = {0: [4, 2, 1], 1: [5, 3, 3], 2: [6, 1, 2]}
    histories = {
        "a": [
            [
                {"epoch": e + 1, "step": e + 1, "train_loss": v}
                for e, v in enumerate(values)
            ]
            for values in losses.values()
        ]
    }
    histories["a"][2].append(
        {"epoch": 4, "step": 4, "train_loss": 1}
    )  # the others have stopped
    figure = figures_seeds.seeds(histories)
    (axis,) = figure.axes
    (line,) = axis.lines
    assert_array_equal(line.get_xydata(), [[1, 5], [2, 2], [3, 2]])
    (band,) = axis.collections
    corners = {tuple(corner) for corner in band.get_paths()[0].vertices.tolist()}
    assert corners == {(1, 4), (1, 6), (2, 1), (2, 3), (3, 1), (3, 3)}
    assert axis.get_legend().get_texts()[0].get_text() == "a, 3 seeds"


def test_axes_are_logarithmic_but_for_zeros(tmp_path, rng):
    members = [
        figures.member(write(tmp_path / f"{name}-0", rng, name=name, seed=0))
        for name in "ab"
    ]
    for last, scale in ((0.1, "log"), (0.0, "linear")):
        rows = [{"epoch": 1, "train_loss": 1.0}, {"epoch": 2, "train_loss": last}]
        assert figures_seeds.seeds({"a": [rows]}).axes[0].get_yscale() == scale
        members[1].outcome.errors[0] = last
        members[1].history[-1]["train_loss"] = last
        assert figures.errors(members).axes[0].get_xscale() == scale
        assert figures.curves(members[1:]).axes[0].get_yscale() == scale


def test_a_folder_without_history_or_predictions_has_no_figures(tmp_path, rng):
    folder = write(tmp_path / "a", rng, name="functional", seed=0)
    (folder / outcome.FILE).unlink()
    (folder / latents.FILE).unlink()
    (folder / "metrics.jsonl").write_text("")
    assert figures.draw(folder, [figures.member(folder)]) == []


def test_an_outcome_is_read_as_it_was_written(tmp_path, rng):
    folder = write(tmp_path / "a", rng, name="functional", seed=0)
    seen = outcome.read(folder)
    assert seen.rows[:2] == [0, 1]
    assert set(outcome.extremes(seen.errors).values()) <= set(seen.rows)
    assert seen.samples[0].grid_shape == (6, 5)
    assert_allclose(seen.predicted[1], seen.samples[1].target + 0.1)
    assert outcome.rows([0.5]) == [0]
    assert outcome.extremes([3.0, 1.0, 2.0, 0.0]) == {
        "best": 3,
        "median": 1,
        "worst": 0,
    }


def test_the_same_data_give_the_same_file(tmp_path, rng):
    folder = write(tmp_path / "a", rng, name="functional", seed=0)
    for name in ("one.png", "two.png"):
        figure = figures.functional_maps(figures.members(folder))
        drawing.save(figure, tmp_path / name)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


@jax.tree_util.register_static
class Looking:
    """A model with maps and bases, or a method without them."""

    def __init__(self, refuses=False):
        self.refuses = refuses

    def inspect(self, mesh_points, features=None, *, quadrature_weights=None):
        if self.refuses:
            raise ValueError("no map to inspect")
        basis = mesh_points[:, :1] * np.arange(9, dtype=np.float32)[None]
        basis = jnp.broadcast_to(basis, (3, 2, *basis.shape))
        return opjax.MapBetweenBases(jnp.ones((3, 2, 9, 9)), basis, basis)


def test_what_is_kept_of_an_inspected_model_is_small():
    sample = {"mesh_points": points("grid")[0]}
    assert outcome.inspect(object(), sample) == {}
    assert outcome.inspect(Looking(refuses=True), sample) == {}
    found = outcome.inspect(Looking(), sample)
    assert found["maps"].shape == (3, 2, 9, 9)
    assert found["basis"].shape == (3, 30, 6)
    # The functions that vary most.
    assert_allclose(found["basis"][0].max(axis=0), [3, 4, 5, 6, 7, 8])

import numpy as np
import pytest

pytest.importorskip("matplotlib")
from matplotlib import image

from experiments.poisson_schwarz import figures as draw
from tests.selection import by_day


@pytest.fixture
def path(tmp_path):
    """Returns a path, and afterwards checks that a picture was written to it."""
    path = tmp_path / "a.png"
    yield path
    assert path.stat().st_size < 4e5
    pixels = image.imread(path)
    assert min(pixels.shape[:2]) > 100
    assert pixels[..., :3].std() > 0.01
    assert [file.name for file in tmp_path.iterdir()] == ["a.png"]


def with_nan(values):
    values = values.copy()
    values.flat[0] = np.nan
    return values


@pytest.mark.parametrize(
    ("rates", "num_seeds"),
    by_day(
        [(r, s) for r in ((0.1,), (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)) for s in (1, 3)],
        day=[((0.1,), 3)],
    ),
)
def test_sweep(path, rng, rates, num_seeds):
    losses = rng.uniform(0.1, 1, size=(2, len(rates), num_seeds, 1203))
    losses[0, 0, 0, 600:] = np.inf
    losses[1, -1] = np.nan
    curves = {"global, rank 40": losses[0], "Schwarz": losses[1]}
    draw.sweep(path, rates, curves, paper={"Schwarz": [0.2] * len(rates)})


def test_sweep_of_one_step(path):
    draw.sweep(path, (0.1,), {"Schwarz": np.ones((1, 1, 1))})


@pytest.mark.nightly
@pytest.mark.parametrize("num_samples", [1, 6, 16])
def test_solutions(path, rng, num_samples):
    fields = rng.normal(size=(3, 9, num_samples))
    points = np.linspace(0.1, 0.9, 9)
    draw.solutions(path, points, *fields[:2], with_nan(fields[2]), title="Schwarz")


@pytest.mark.nightly
def test_operator(path, rng):
    local, coarse, exact = rng.normal(size=(3, 12, 12))
    hats = rng.uniform(size=(12, 3))
    draw.operator(path, with_nan(local), coarse, exact, hats)


@pytest.mark.parametrize("num_subdomains", by_day([1, 8, 21], [8]))
def test_blocks(path, rng, num_subdomains):
    local = with_nan(rng.normal(size=(num_subdomains, 5, 5)))
    draw.blocks(path, local, rng.normal(size=(3, 3)))


@pytest.mark.parametrize("overlap", [0.0, 0.02])
def test_hats(path, overlap):
    points = np.linspace(0.05, 0.95, 19)
    hats = np.maximum(0, 1 - 4 * np.abs(points[:, None] - [0.25, 0.5, 0.75]))
    draw.hats(path, points, hats, [0.25, 0.5, 0.75], overlap=overlap)


def test_medians_leave_out_what_is_not_finite():
    values = np.array([[3.0, np.nan, 1.0, np.inf, 2.0], [np.nan] * 5])
    expected = [[1, np.nan], [2, np.nan], [3, np.nan]]
    np.testing.assert_array_equal(draw._spread(values), expected)

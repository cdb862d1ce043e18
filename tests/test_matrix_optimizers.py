import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.testing import assert_allclose, assert_array_equal

from opjax import training
from opjax.training.matrix_optimizers import is_matrix

RATE = 0.01


def newton_schulz(g):
    """Five steps of the published quintic, in numpy."""
    x = g.T if g.shape[0] > g.shape[1] else g
    x = x / np.linalg.norm(x)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
    return x.T if g.shape[0] > g.shape[1] else x


def parameters():
    rng = np.random.default_rng(0)
    shapes = {"kernel": (2, 5, 3), "score_kernel": (3, 4), "bias": (2, 3)}
    return {name: rng.normal(size=s) for name, s in shapes.items()}


def gradients():
    return jax.tree.map(lambda p: jnp.cos(3 * p), parameters())


def test_every_matrix_of_a_stack_moves_along_its_own_orthogonal_factor():
    rule = training.muon(RATE, weight_decay=0.1)
    params, grads = parameters(), gradients()
    updates, _ = rule.update(grads, rule.init(params), params)
    for layer in range(2):
        p, g = (np.asarray(t["kernel"][layer]) for t in (params, grads))
        expected = -RATE * (0.2 * 5**0.5 * newton_schulz(g) + 0.1 * p)
        assert_allclose(updates["kernel"][layer], expected, atol=1e-9)
        # Newton-Schulz makes singular values about one, and no vector another.
        u, _, vt = np.linalg.svd(g, full_matrices=False)
        inner = u.T @ (np.asarray(updates["kernel"][layer]) + RATE * 0.1 * p) @ vt.T
        sizes = -np.diag(inner) / (RATE * 0.2 * 5**0.5)
        assert np.all((sizes > 0.6) & (sizes < 1.3))
        assert_allclose(inner, np.diag(np.diag(inner)), atol=1e-12)


def test_the_rest_moves_as_under_adamw():
    given = {"weight_decay": 0.1, "b1": 0.8, "b2": 0.9, "eps": 1e-6}
    rule, other = training.muon(RATE, **given), training.adamw(RATE, **given)
    params, grads = parameters(), gradients()
    bias = {"bias": params["bias"]}
    state, alone = rule.init(params), other.init(bias)
    for _ in range(3):
        updates, state = rule.update(grads, state, params)
        expected, alone = other.update({"bias": grads["bias"]}, alone, bias)
        assert_array_equal(updates["bias"], expected["bias"])
    assert float(optax.tree.get(state, "learning_rate")) == RATE  # for the history


def test_updates_of_matrices_do_not_depend_on_the_scale_of_the_gradient():
    rule = training.muon(RATE, weight_decay=0.0)
    params, grads = parameters(), gradients()
    found = [
        rule.update(jax.tree.map(lambda g: s * g, grads), rule.init(params), params)[0]  # noqa: B023
        for s in (1.0, 1e3)
    ]
    for name in ("kernel", "score_kernel"):
        assert_allclose(found[0][name], found[1][name], atol=1e-9)


def test_kernels_are_matrices_and_nothing_else_is():
    shapes = {
        "kernel": (4, 6),
        "score_kernel": (2, 3, 4, 6),
        "bias": (4, 6),
        "decoder_kernel": (4, 1),
        "spectral_kernel": (8, 5, 4, 6, 2),
    }
    tree = {"layer": {k: jnp.zeros(s) for k, s in shapes.items()}}
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    found = {path[-1].key for path, leaf in leaves if is_matrix(path, leaf)}
    assert found == {"kernel", "score_kernel"}

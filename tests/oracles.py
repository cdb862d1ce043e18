"""Slow, obvious NumPy versions in float64, and the checks that compare with them.

Nothing here imports opjax: sums are written out, systems are least squares.
"""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose


def replaced(array, index, values):
    """A copy of an array of NumPy with other values at an index."""
    copy = np.array(array)
    copy[index] = values
    return copy


# linalg


def ridge_lstsq(matrix, target, *, ridge):
    """argmin_X |A X - B|^2 + ridge |X|^2 as one tall least-squares problem."""
    d, c = matrix.shape[1], target.shape[1]
    tall = np.vstack([matrix, math.sqrt(ridge) * np.eye(d)])
    return np.linalg.lstsq(tall, np.vstack([target, np.zeros((d, c))]), rcond=None)[0]


def convex_ridge_lstsq(matrix, target, *, ridge):
    """A^T ((1 - r) A A^T + r I)^{-1} B by scaling the additive problem; r < 1."""
    return ridge_lstsq(matrix, target, ridge=ridge / (1 - ridge)) / (1 - ridge)


def condition_number(matrix, *, ridge, data_weight=1.0):
    k = matrix.shape[0]
    return np.linalg.cond(data_weight * matrix @ matrix.T + ridge * np.eye(k))


def inf_sup_constant(form, trial_gram, test_gram):
    """Roots of `B M_V^{-1} B^T x = c^2 M_Q x`, a general eigenvalue problem."""
    squares = form @ np.linalg.inv(test_gram) @ form.T
    return np.sqrt(np.linalg.eigvals(np.linalg.inv(trial_gram) @ squares).real.min())


# quadrature


def trapezoid_axis(n, length):
    """The integrals of the `n` piecewise-linear nodal functions of one axis."""
    return np.trapezoid(np.eye(n), np.linspace(0, length, n), axis=1)


def cell_axis(n, length):
    return np.diff(np.linspace(0, length, n + 1))


def scattered_weights(points, num_neighbors, volume):
    distances = [sorted(math.dist(a, b) for b in points)[num_neighbors] for a in points]
    cells = np.array(distances) ** points.shape[1]
    return volume * cells / cells.sum()


def triangle_weights(points, triangles):
    """A third of every triangle's area, by Heron's formula, to each corner."""
    weights = np.zeros(len(points))
    for corners in triangles:
        a, b, c = (math.dist(points[i], points[j]) for i, j in _pairs(corners))
        s = (a + b + c) / 2
        weights[corners] += math.sqrt(s * (s - a) * (s - b) * (s - c)) / 3
    return weights


def _pairs(corners):
    return itertools.combinations(corners, 2)


# basis


def softmax_rows(scores, temperature=1.0):
    rows = []
    for row in scores:
        exponentials = [math.exp(s / temperature) for s in row]
        rows.append([e / sum(exponentials) for e in exponentials])
    return np.array(rows)


def indicator_rows(scores):
    rows = [
        [float(j == list(row).index(max(row))) for j in range(len(row))]
        for row in scores
    ]
    return np.array(rows)


def tensor_product(axes):
    """All products of one function per axis, the last axis fastest."""
    columns = [np.prod(c, axis=0) for c in itertools.product(*[a.T for a in axes])]
    return np.stack(columns, axis=1)


def fourier_axis(x, num_frequencies, length):
    columns = [np.full(len(x), 1 / math.sqrt(length))]
    for j in range(1, num_frequencies + 1):
        for wave in (np.cos, np.sin):
            columns.append(math.sqrt(2 / length) * wave(2 * math.pi * j * x / length))
    return np.stack(columns, axis=1)


def hat_axis(x, num_nodes, lower, upper):
    nodes = np.linspace(lower, upper, num_nodes)
    return np.stack([np.interp(x, nodes, e) for e in np.eye(num_nodes)], axis=1)


def gram_schmidt(basis, weights):
    columns = []
    for column in basis.T:
        for q in columns:
            column = column - np.sum(weights * q * column) * q
        columns.append(column / math.sqrt(np.sum(weights * column**2)))
    return np.stack(columns, axis=1)


def gram(basis, weights):
    k = basis.shape[1]
    inner = [
        np.sum(weights * basis[:, i] * basis[:, j]) for i in range(k) for j in range(k)
    ]
    return np.array(inner).reshape(k, k)


def project(values, basis, weights=None, *, method="transpose", ridge=0.0, offset=1e-5):
    weights = np.ones(len(values)) if weights is None else weights
    if method == "pseudo_inverse":
        root = np.sqrt(weights)[:, None]
        return ridge_lstsq(root * basis, root * values, ridge=ridge)
    coefficients = np.zeros((basis.shape[1], values.shape[1]))
    for phi, row in zip(basis.T, coefficients, strict=True):
        for w, p, f in zip(weights, phi, values, strict=True):
            row += w * p * f
        if method == "mean":
            row /= np.sum(weights * phi) + offset * np.mean(weights[weights > 0])
    return coefficients


# attention


def functional_map(query, key, *, ridge, convex=False):
    """argmin_C |C K - Q|^2 + ridge |C|^2, Eq. 6, by its transpose."""
    fit = convex_ridge_lstsq if convex else ridge_lstsq
    return fit(key.T, query.T, ridge=ridge).T


def functional_attention(
    query, key, value, query_basis, key_basis, query_weights=None, key_weights=None,
    *, ridge, convex=False, **projection,
):  # fmt: skip
    """Eq. 4, 6 and 5 in their order."""
    q = project(query, query_basis, query_weights, **projection)
    k = project(key, key_basis, key_weights, **projection)
    v = project(value, key_basis, key_weights, **projection)
    c = functional_map(q, k, ridge=ridge, convex=convex)
    return query_basis @ (c @ v)


def intention(query, key, value, weights=None, *, ridge):
    """Eq. 46: the ridge regression of values on keys, evaluated at queries."""
    weights = np.ones(len(key)) if weights is None else weights
    root = np.sqrt(weights)[:, None]
    return query @ ridge_lstsq(root * key, root * value, ridge=ridge)


def softmax_attention(query, key, value, weights=None):
    weights = np.ones(len(key)) if weights is None else weights
    rows = []
    for q in query:
        e = [
            w * math.exp(q @ k / math.sqrt(len(q)))
            for w, k in zip(weights, key, strict=True)
        ]
        rows.append(sum(a * v for a, v in zip(e, value, strict=True)) / sum(e))
    return np.array(rows)


# checks


def relative_error(actual, expected):
    """Of all values together, in double precision."""
    actual = np.asarray(actual, float)
    return np.linalg.norm(actual - expected) / np.linalg.norm(expected)


def check(function, oracle, args, **differences):
    """Compares values and gradients, both by one program."""
    _compare(check_gradient(function, oracle, args, **differences), oracle(*args))


def check_value(function, oracle, args):
    _compare(function(*args), oracle(*args))


def _compare(actual, expected):
    assert actual.dtype == jnp.float64
    assert actual.shape == expected.shape
    assert_allclose(actual, expected, rtol=1e-10, atol=1e-10 * _size(expected))


def check_gradient(function, oracle, args, *, rtol=1e-7, step=1e-3, seed=1):
    """Compares the VJP with fourth-order central differences of the oracle.

    One random cotangent, and one random direction per argument: a wrong entry of any
    gradient changes the inner products almost surely. Returns the value.
    """
    rng = np.random.default_rng(seed)
    args = [np.asarray(a, float) for a in args]
    cotangent = rng.normal(size=oracle(*args).shape)

    @jax.jit
    def both(*args):
        pull = jax.vjp(function, *args)[1]
        return function(*args), pull(jnp.asarray(cotangent))

    value, gradients = both(*args)
    for i, gradient in enumerate(gradients):
        direction = rng.normal(size=args[i].shape)

        def along(t, i=i, direction=direction):
            moved = [*args[:i], args[i] + t * step * direction, *args[i + 1 :]]
            return np.sum(cotangent * oracle(*moved))

        expected = 8 * (along(1) - along(-1)) - (along(2) - along(-2))
        expected /= 12 * step
        assert expected != 0, f"the oracle does not depend on argument {i}"
        actual = np.sum(np.asarray(gradient) * direction)
        assert_allclose(actual, expected, rtol=rtol, err_msg=f"argument {i}")
    return value


def check_transforms(function, args, *, rtol32=1e-4):
    """Checks compiled vmap == a loop of eager calls, and float32 in, float32 out.

    Both are one compiled program, because compilation dominates the time.
    """
    args = [np.asarray(a) for a in args]
    other = [0.5 * a for a in args]
    loop = np.stack([function(*args), function(*other)])
    batch = [np.stack(pair) for pair in zip(args, other, strict=True)]

    @jax.jit
    def program(batch, single):
        return jax.vmap(function)(*batch), function(*single)

    mapped, single = program(batch, [a.astype(np.float32) for a in args])
    size = _size(loop[0])
    assert_allclose(mapped, loop, rtol=1e-10, atol=1e-10 * size)
    assert single.dtype == jnp.float32
    assert_allclose(single, loop[0], rtol=rtol32, atol=rtol32 * size)


def _size(array):
    return float(np.max(np.abs(array), initial=1e-30))

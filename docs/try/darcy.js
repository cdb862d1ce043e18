"use strict";
// Darcy flow on a square as `opjax.problems.darcy` solves it, and its random fields.
// Fields are Float64Arrays, row by row. tests/test_site.py compares both solvers.
const darcy = (() => {
  const matrices = {};

  /** Not-a-knot cubic splines from cell centres to nodes, or back: a matrix, n x n. */
  function splineMatrix(n, toNodes) {
    const name = `${n} ${toNodes}`;
    if (matrices[name]) return matrices[name];
    // Left the system of the second derivatives, right 6 times the second differences.
    const rows = Array.from({ length: n }, () => new Float64Array(2 * n));
    for (let i = 1; i < n - 1; i++) {
      rows[i].set([1, 4, 1], i - 1);
      rows[i].set([6, -12, 6], n + i - 1);
    }
    rows[0].set([1, -2, 1], 0);
    rows[n - 1].set([1, -2, 1], n - 3);
    for (let k = 0; k < n; k++) {
      let pivot = k;
      for (let i = k; i < n; i++) if (Math.abs(rows[i][k]) > Math.abs(rows[pivot][k])) pivot = i;
      [rows[k], rows[pivot]] = [rows[pivot], rows[k]];
      const scale = rows[k][k];
      for (let j = k; j < 2 * n; j++) rows[k][j] /= scale;
      for (let i = 0; i < n; i++) {
        const factor = i === k ? 0 : rows[i][k];
        if (factor) for (let j = k; j < 2 * n; j++) rows[i][j] -= factor * rows[k][j];
      }
    }
    const matrix = new Float64Array(n * n);
    for (let i = 0; i < n; i++) {
      const position = toNodes ? (i / (n - 1)) * n - 0.5 : ((i + 0.5) / n) * (n - 1);
      const left = Math.min(Math.max(Math.floor(position), 0), n - 2);
      const t = position - left, s = 1 - t;
      for (let j = 0; j < n; j++) {
        matrix[i * n + j] = ((s ** 3 - s) * rows[left][n + j] + (t ** 3 - t) * rows[left + 1][n + j]) / 6;
      }
      matrix[i * n + left] += s;
      matrix[i * n + left + 1] += t;
    }
    return (matrices[name] = matrix);
  }

  /** matrix @ values, and the transpose of that. */
  function half(matrix, values, n) {
    const result = new Float64Array(n * n);
    const row = new Float64Array(n);
    for (let i = 0; i < n; i++) {
      row.fill(0);
      for (let k = 0; k < n; k++) {
        const factor = matrix[i * n + k];
        if (factor) for (let j = 0; j < n; j++) row[j] += factor * values[k * n + j];
      }
      for (let j = 0; j < n; j++) result[j * n + i] = row[j];
    }
    return result;
  }
  const toAxes = (matrix, values, n) => half(matrix, half(matrix, values, n), n);

  /** Solves -div(a grad u) = 1, u = 0 on the boundary, by conjugate gradients. */
  function solve(coefficient, n, { tolerance = 1e-8, maxIterations = 4000 } = {}) {
    const a = toAxes(splineMatrix(n, true), coefficient, n);
    const right = new Float64Array(n * n), down = new Float64Array(n * n);
    const diagonal = new Float64Array(n * n), scale = (n - 1) ** 2 / 2;
    for (let i = 0; i < n * n; i++) {
      right[i] = scale * (a[i] + a[i + 1]);
      down[i] = scale * (a[i] + a[i + n]);
    }
    const u = new Float64Array(n * n), residual = new Float64Array(n * n);
    const image = new Float64Array(n * n);
    for (let y = 1; y < n - 1; y++) {
      for (let i = y * n + 1; i < y * n + n - 1; i++) {
        diagonal[i] = right[i] + right[i - 1] + down[i] + down[i - n];
        residual[i] = 1;
      }
    }
    const direction = residual.slice();
    let energy = (n - 2) ** 2, iterations = 0;
    const limit = energy * tolerance ** 2;
    for (; energy > limit && iterations < maxIterations; iterations++) {
      let curvature = 0;
      for (let y = 1; y < n - 1; y++) {
        for (let i = y * n + 1; i < y * n + n - 1; i++) {
          image[i] = diagonal[i] * direction[i]
            - right[i] * direction[i + 1] - right[i - 1] * direction[i - 1]
            - down[i] * direction[i + n] - down[i - n] * direction[i - n];
          curvature += image[i] * direction[i];
        }
      }
      const step = energy / curvature;
      let next = 0;
      for (let i = n; i < n * n - n; i++) {
        u[i] += step * direction[i];
        residual[i] -= step * image[i];
        next += residual[i] * residual[i];
      }
      const ratio = next / energy;
      for (let i = n; i < n * n - n; i++) direction[i] = residual[i] + ratio * direction[i];
      energy = next;
    }
    const solution = toAxes(splineMatrix(n, false), u, n);
    return { solution, iterations, converged: energy <= limit };
  }

  /** A Gaussian field at cell centres (alpha = 2, tau = 3); `normal` draws numbers. */
  function gaussianField(n, normal) {
    const cosines = new Float64Array(n * n), spectrum = new Float64Array(n * n);
    for (let k = 0; k < n; k++) {
      for (let i = 0; i < n; i++) {
        cosines[i * n + k] = Math.cos((Math.PI * k * (i + 0.5)) / n) * Math.sqrt((k ? 2 : 1) / n);
        spectrum[i * n + k] = (normal() * 3 * n) / (Math.PI ** 2 * (i * i + k * k) + 9);
      }
    }
    spectrum[0] = 0;
    return toAxes(cosines, spectrum, n);
  }

  return { solve, gaussianField };
})();

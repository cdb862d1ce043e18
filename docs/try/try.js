"use strict";
// The page to try an operator: draws, predicts with ONNX Runtime, solves, compares.
(() => {
  const CELLS = 87, BLOCK = 3, POINTS = CELLS / BLOCK, LOW = 3, HIGH = 12;
  const element = (name) => document.getElementById(`try-${name}`);
  const root = document.getElementById("try");
  const cells = new Uint8Array(CELLS * CELLS); // 1 where the rock is permeable
  const state = { phase: 1, third: "solver", cursor: [43, 43], drawn: 0, inside: 0 };
  let session = null, ort = null;

  // ---- The operator, and the truth -----------------------------------------------
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

  /** Starts ONNX Runtime from the scripts of the page: a file may not fetch files. */
  async function start(runtime) {
    const packed = new Blob([bytes(runtime.wasm)]).stream();
    const unpacked = packed.pipeThrough(new DecompressionStream("gzip"));
    const source = URL.createObjectURL(new Blob([runtime.ort], { type: "text/javascript" }));
    ort = await import(source);
    ort.env.wasm.numThreads = 1;
    ort.env.wasm.wasmBinary = await new Response(unpacked).arrayBuffer();
    session = await ort.InferenceSession.create(bytes(runtime.operator));
    await predict(new Float64Array(cells.length).fill(LOW)); // the first call is slow
  }

  /** Predicts from the permeability at the cells; outputs by name, and the time. */
  async function predict(coefficient) {
    const means = new Float32Array(POINTS * POINTS);
    for (let y = 0; y < CELLS; y++) {
      for (let x = 0; x < CELLS; x++) {
        const block = Math.floor(y / BLOCK) * POINTS + Math.floor(x / BLOCK);
        means[block] += coefficient[y * CELLS + x] / BLOCK ** 2;
      }
    }
    const array = (data, columns) => new ort.Tensor("float32", data, [POINTS * POINTS, columns]);
    const places = Float32Array.from({ length: 2 * means.length }, (_, k) =>
      (k % 2 ? (k >> 1) % POINTS : Math.floor((k >> 1) / POINTS)) / (POINTS - 1));
    const begin = performance.now();
    const outputs = await session.run({ mesh_points: array(places, 2), features: array(means, 1) });
    const seconds = (performance.now() - begin) / 1000;
    const found = { seconds };
    for (const name in outputs) found[name] = name === "values" ? outputs[name].data : outputs[name].data[0];
    found.pressure = found.values.filter((_, i) => i % 2 === 0);
    found.halfWidth = found.values.filter((_, i) => i % 2 === 1);
    return found;
  }

  function solve(coefficient) {
    const begin = performance.now();
    const { solution, converged } = darcy.solve(coefficient, CELLS);
    const seconds = (performance.now() - begin) / 1000;
    const field = new Float64Array(POINTS * POINTS);
    for (let i = 0; i < field.length; i++) {
      const y = Math.floor(i / POINTS) * BLOCK + 1, x = (i % POINTS) * BLOCK + 1;
      field[i] = solution[y * CELLS + x];
    }
    return { field, seconds, converged };
  }

  function compare(predicted, truth) {
    let error = 0, size = 0, inside = 0;
    const errors = predicted.pressure.map((p, i) => Math.abs(p - truth[i]));
    errors.forEach((e, i) => {
      error += e * e;
      size += truth[i] ** 2;
      inside += e <= predicted.halfWidth[i];
    });
    return { relative: Math.sqrt(error / size), inside: inside / errors.length, errors };
  }
  const quantities = (field) => [field.reduce((a, b) => a + b) / field.length, Math.max(...field)];

  // ---- Drawings ------------------------------------------------------------------
  function normal() {
    return Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
  }
  const fill = (inside) => {
    for (let i = 0; i < cells.length; i++) {
      cells[i] = inside(((i % CELLS) + 0.5) / CELLS, (Math.floor(i / CELLS) + 0.5) / CELLS) ? 1 : 0;
    }
  };

  /** Paints all cells within a radius (in widths of the square) of a segment. */
  function paint([x0, y0], [x1, y1], radius, phase) {
    const dx = x1 - x0, dy = y1 - y0, length = Math.max(dx * dx + dy * dy, 1e-12);
    for (let i = 0; i < cells.length; i++) {
      const x = ((i % CELLS) + 0.5) / CELLS - x0, y = (Math.floor(i / CELLS) + 0.5) / CELLS - y0;
      const t = Math.min(Math.max((x * dx + y * dy) / length, 0), 1);
      if ((x - t * dx) ** 2 + (y - t * dy) ** 2 < radius * radius) cells[i] = phase;
    }
  }
  const uniform = (low, high) => low + (high - low) * Math.random();
  const point = () => [uniform(-0.05, 1.05), uniform(-0.05, 1.05)];

  const DRAWINGS = {
    field() {
      darcy.gaussianField(CELLS, normal).forEach((value, i) => (cells[i] = value >= 0 ? 1 : 0));
    },
    strokes() { // as in docs/scripts/try_data.py
      const base = Math.random() < 0.5 ? 1 : 0;
      cells.fill(base);
      for (let count = Math.floor(uniform(1, 9)); count > 0; count--) {
        const corners = Array.from({ length: Math.floor(uniform(1, 4)) }, point);
        const radius = uniform(0.03, corners.length === 1 ? 0.16 : 0.09);
        const phase = Math.random() < 0.8 ? 1 - base : base;
        if (corners.length === 1) corners.push(corners[0]);
        corners.slice(1).forEach((end, i) => paint(corners[i], end, radius, phase));
      }
    },
    channel: () => fill((x, y) => Math.abs(y - 0.5 - 0.22 * Math.sin(2 * Math.PI * x)) < 0.11),
    islands: () => fill((x, y) => [[0.25, 0.28, 0.14], [0.7, 0.22, 0.1], [0.55, 0.6, 0.18], [0.2, 0.75, 0.11], [0.85, 0.82, 0.09]]
      .every(([u, v, r]) => (x - u) ** 2 + (y - v) ** 2 > r * r)),
    barriers: () => fill((x, y) => !(Math.abs(x - 0.32) < 0.045 && y < 0.72) && !(Math.abs(x - 0.66) < 0.045 && y > 0.28)),
    stripes: () => fill((x) => Math.floor(x * 29) % 2),
    rings: () => fill((x, y) => Math.floor(Math.hypot(x - 0.5, y - 0.5) * 22) % 2),
    clear: () => cells.fill(0),
  };

  // ---- Pictures ------------------------------------------------------------------
  const VIRIDIS = ["440154", "482878", "3e4a89", "31688e", "26838f", "1f9d8a", "6cce5a", "b6de2b", "fee825"];
  const FLAMES = ["1b1b2a", "4b1d52", "8c2369", "c73e4c", "ee6a2c", "fba40a", "f6d746", "fcffa4"];
  const ramp = (colours) => {
    const stops = colours.map((c) => [0, 2, 4].map((i) => parseInt(c.slice(i, i + 2), 16)));
    return (value) => {
      const place = Math.min(Math.max(value, 0), 0.99999) * (stops.length - 1);
      const left = Math.floor(place);
      return stops[left].map((c, k) => c + (place - left) * (stops[left + 1][k] - c));
    };
  };
  const pressureColour = ramp(VIRIDIS), errorColour = ramp(FLAMES);
  const SIZE = 348; // pixels of a map

  /** Value between points by cubics; zero on the boundary, half a step outside. */
  function between(field, x, y) {
    const at = (j, i) => {
      const inside = Math.min(Math.max(i, 0), POINTS - 1) + POINTS * Math.min(Math.max(j, 0), POINTS - 1);
      return i < 0 || j < 0 || i >= POINTS || j >= POINTS ? -field[inside] : field[inside];
    };
    const cubic = (a, b, c, d, t) => b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
    const i = Math.floor(x), j = Math.floor(y);
    const rows = [-1, 0, 1, 2].map((k) => cubic(at(j + k, i - 1), at(j + k, i), at(j + k, i + 1), at(j + k, i + 2), x - i));
    return cubic(...rows, y - j);
  }

  function show(canvas, field, largest, colour, isobars) {
    canvas.width = canvas.height = SIZE;
    const context = canvas.getContext("2d"), image = context.createImageData(SIZE, SIZE);
    const levels = new Float32Array(SIZE * SIZE);
    const place = (i) => ((i + 0.5) / SIZE) * POINTS - 0.5;
    for (let i = 0; i < levels.length; i++) {
      levels[i] = between(field, place(i % SIZE), place(Math.floor(i / SIZE))) / largest;
    }
    for (let i = 0; i < levels.length; i++) {
      const band = Math.floor(levels[i] * 10);
      const line = isobars && (band !== Math.floor(levels[i + 1] * 10) && (i + 1) % SIZE
        || i + SIZE < levels.length && band !== Math.floor(levels[i + SIZE] * 10));
      image.data.set([...colour(levels[i]).map((c) => (line ? 0.55 * c : c)), 255], 4 * i);
    }
    context.putImageData(image, 0, 0);
  }

  function showRock() {
    const style = getComputedStyle(root);
    const colours = ["--tight", "--permeable"].map((name) => style.getPropertyValue(name).trim())
      .map((c) => [1, 3, 5].map((i) => parseInt(c.slice(i, i + 2), 16)));
    const context = element("rock").getContext("2d"), image = context.createImageData(CELLS, CELLS);
    cells.forEach((cell, i) => image.data.set([...colours[cell], 255], 4 * i));
    context.putImageData(image, 0, 0);
  }

  function showChart(predicted, truth) {
    const svg = element("chart"), { width, height } = svg.getBoundingClientRect();
    const row = Number(element("line").value), left = 34, bottom = height - 18;
    const cut = (field) => [0, ...field.slice(row * POINTS, (row + 1) * POINTS), 0];
    const all = predicted ? Array.from(predicted.pressure, (p, i) => p + predicted.halfWidth[i]) : truth;
    const top = Math.max(...all, ...truth) * 1.05;
    const xs = [0, ...Array.from({ length: POINTS }, (_, i) => (i + 0.5) / POINTS), 1];
    const px = (x) => (left + x * (width - left - 6)).toFixed(1), py = (v) => (bottom - (v / top) * (bottom - 6)).toFixed(1);
    const path = (values) => values.map((v, i) => `${px(xs[i])},${py(v)}`).join(" L");
    const step = [0.001, 0.002, 0.005, 0.01].find((s) => top / s <= 6) || 0.02;
    let drawn = "";
    for (let v = 0; v < top; v += step) {
      drawn += `<line class="rule" x1="${left}" x2="${width}" y1="${py(v)}" y2="${py(v)}"/>`
        + `<text x="${left - 5}" y="${py(v)}" dy="0.35em" text-anchor="end">${(1000 * v).toFixed(0)}</text>`;
    }
    for (const x of [0, 0.25, 0.5, 0.75, 1]) {
      drawn += `<text x="${px(x)}" y="${height - 3}" text-anchor="${x === 1 ? "end" : "middle"}">${x}</text>`;
    }
    if (predicted) {
      const middle = cut(predicted.pressure), half = cut(predicted.halfWidth);
      half[0] = half[1];
      half[half.length - 1] = half[half.length - 2];
      const upper = xs.map((x, i) => `${px(x)},${py(middle[i] + half[i])}`);
      const lower = xs.map((x, i) => `${px(x)},${py(Math.max(middle[i] - half[i], 0))}`);
      drawn += `<polygon class="band" points="${[...upper, ...lower.reverse()].join(" ")}"/>`
        + `<path class="operator" d="M${path(middle)}"/>`;
    }
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.innerHTML = `${drawn}<path class="solver" d="M${path(cut(truth))}"/>`;
  }

  const thousandths = (value) => (1000 * value).toFixed(2);
  const percent = (value) => `${(100 * value).toFixed(value < 0.0995 ? 1 : 0)} %`;
  const milliseconds = (seconds) => `${Math.round(1000 * seconds)} ms`;

  function showNumbers(predicted, truth, compared) {
    const exact = quantities(truth.field);
    ["mean", "maximum"].forEach((name, i) => {
      const own = element(`${name}-true`);
      own.textContent = thousandths(exact[i]);
      if (predicted) {
        const value = predicted[name], half = predicted[`${name}_half_width`];
        element(name).textContent = `${thousandths(value)} ± ${thousandths(half)}`;
        own.textContent += Math.abs(exact[i] - value) <= half ? " ✓" : " ✗";
      }
    });
    element("solver-time").textContent = truth.converged ? milliseconds(truth.seconds) : "did not converge";
    if (!predicted) return;
    element("operator-time").textContent = milliseconds(predicted.seconds);
    element("error").textContent = percent(compared.relative);
    element("inside").textContent = compared.inside === 1 ? "whole field" : `${percent(compared.inside)} of points`;
    element("count").textContent = state.drawn ? `${state.inside} of ${state.drawn}` : "–";
    const pValue = predicted.p_value, unlike = pValue <= 0.05;
    const said = element("likeness");
    said.classList.toggle("unlike", unlike);
    said.textContent = unlike
      ? `Unlike the training data (p = ${pValue.toFixed(3)}): do not trust the prediction or its band here.`
      : `Like the training data (p = ${pValue.toFixed(2)}): the band holds the whole field for 9 of 10 such drawings.`;
  }

  function showAll({ predicted, truth, compared }) {
    const largest = Math.max(...truth.field);
    if (predicted) show(element("operator"), predicted.pressure, largest, pressureColour, true);
    if (state.third === "error" && compared) {
      show(element("third"), compared.errors, Math.max(...predicted.halfWidth), errorColour, false);
    } else {
      show(element("third"), truth.field, largest, pressureColour, true);
    }
    showNumbers(predicted, truth, compared);
    showChart(predicted, truth.field);
  }

  // ---- Updates: one at a time, the last drawing always ---------------------------
  let latest = null, wanted = false, running = null;
  async function update() {
    showRock();
    const coefficient = Float64Array.from(cells, (cell) => (cell ? HIGH : LOW));
    const predicted = session && (await predict(coefficient));
    const truth = solve(coefficient);
    const compared = predicted && compare(predicted, truth.field);
    latest = { predicted, truth, compared };
    showAll(latest);
    await new Promise(requestAnimationFrame);
  }
  function refresh() {
    wanted = true;
    running ||= (async () => {
      while (wanted) {
        wanted = false;
        await update();
      }
      running = null;
    })();
    return running;
  }

  async function draw(name) {
    DRAWINGS[name]();
    await refresh();
    if (latest.compared && (name === "field" || name === "strokes")) {
      state.drawn += 1;
      state.inside += latest.compared.inside === 1;
      showAll(latest);
    }
  }

  // ---- Hands ---------------------------------------------------------------------
  function listen() {
    const rock = element("rock");
    const radius = () => Number(element("size").value) / CELLS;
    const where = (event) => {
      const box = rock.getBoundingClientRect();
      return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    };
    const showBrush = ([x, y]) => {
      const diameter = `${200 * radius()}%`;
      Object.assign(element("brush").style, { left: `${100 * x}%`, top: `${100 * y}%`, width: diameter, height: diameter });
    };
    const stroke = (from, to) => {
      paint(from, to, radius(), state.phase);
      showRock();
      refresh();
    };
    let last = null;
    rock.addEventListener("pointerdown", (event) => {
      rock.setPointerCapture(event.pointerId);
      last = where(event);
      stroke(last, last);
    });
    rock.addEventListener("pointermove", (event) => {
      const here = where(event);
      showBrush(here);
      if (last) stroke(last, here);
      last = last && here;
    });
    for (const end of ["pointerup", "pointercancel"]) rock.addEventListener(end, () => (last = null));
    const cursor = () => state.cursor.map((c) => (c + 0.5) / CELLS);
    rock.addEventListener("focus", () => showBrush(cursor()));
    rock.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: [-2, 0], ArrowRight: [2, 0], ArrowUp: [0, -2], ArrowDown: [0, 2], " ": [0, 0] }[event.key];
      if (!move) return;
      event.preventDefault();
      const before = cursor();
      state.cursor = state.cursor.map((c, k) => Math.min(Math.max(c + move[k], 0), CELLS - 1));
      showBrush(cursor());
      if (event.key === " " || event.shiftKey) stroke(before, cursor());
    });

    const press = (buttons, chosen) => buttons.forEach((b) => b.setAttribute("aria-pressed", b === chosen));
    for (const name of ["phase", "third"]) {
      const buttons = [...root.querySelectorAll(`[data-${name}]`)];
      buttons.forEach((button) => button.addEventListener("click", () => {
        press(buttons, button);
        state[name] = name === "phase" ? Number(button.dataset.phase) : button.dataset.third;
        element("third").setAttribute("aria-label", state.third === "error" ? "Error of the prediction" : "Pressure of the solver");
        if (latest) showAll(latest);
      }));
    }
    root.querySelectorAll("[data-drawing]").forEach((button) => {
      button.addEventListener("click", () => draw(button.dataset.drawing));
    });
    const setLine = () => {
      root.style.setProperty("--section", (100 * (Number(element("line").value) + 0.5)) / POINTS);
      if (latest) showChart(latest.predicted, latest.truth.field);
    };
    element("line").addEventListener("input", setLine);
    for (const name of ["operator", "third"]) {
      const canvas = element(name);
      const follow = (event) => {
        if (event.type === "pointermove" && !event.buttons) return;
        const box = canvas.getBoundingClientRect();
        element("line").value = Math.floor(((event.clientY - box.top) / box.height) * POINTS);
        setLine();
      };
      canvas.addEventListener("pointerdown", follow);
      canvas.addEventListener("pointermove", follow);
    }
    new ResizeObserver(() => latest && showChart(latest.predicted, latest.truth.field)).observe(element("chart"));
    setLine();
  }

  async function main() {
    root.hidden = false;
    listen();
    DRAWINGS.islands();
    const note = element("note");
    if (globalThis.tryRuntime) {
      try {
        await start(globalThis.tryRuntime);
      } catch (error) {
        note.textContent = `The operator does not run in this browser (${error.message}). The solver does.`;
      }
    } else {
      note.innerHTML = "This copy of the documentation has no runtime for the operator, only the solver. "
        + "<code>python docs/scripts/try_it.py</code> adds it: run it, then build the documentation again.";
    }
    await refresh();
    root.dataset.ready = session ? "operator" : "solver";
  }

  // For tests.
  globalThis.tryIt = { cells, draw, predict, solve, refresh, latest: () => latest };
  main();
})();

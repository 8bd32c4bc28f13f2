// Draws the charts of the report and makes them usable by pointer, keyboard and screen reader. Everything that is
// said (labels, units) comes with the data; here are only shapes.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const LANES = ["flush", "dump", "restore", "seal"];
  const PARTS = ["running", "waiting", "suspended", "parked"];
  const mib = (value) => (value >= 1024 ? `${(value / 1024).toFixed(value % 1024 ? 1 : 0)} GiB` : `${Math.round(value)}${value ? " MiB" : ""}`);
  const seconds = (value) => `${value} s`;
  const DOES = { coming: "is brought in", running: "runs", suspended: "is suspended in memory", leaving: "leaves memory" };
  const identity = { color: { type: "identity" }, opacity: { type: "identity" } };
  const margins = { marginLeft: 84, marginRight: 22 };

  // Each chart: where it is, what it is called, and a function from width and stretch of time to a plot and its marks.
  const charts = [];

  function matrix(run) {
    const band = Math.max(48, Math.min(132, 560 / run.nodes.length));
    const lane = 9, gap = 10;
    const top = Math.max(1, ...run.blocks.map((block) => block.high));
    // Lanes lie below zero, in shares of a band.
    const unit = top / band;
    const y = (index) => -(gap + index * (lane + 4)) * unit;
    const bottom = y(LANES.length);
    for (const block of run.blocks) {
      const declared = mib(Math.round((block.high - block.low) * run.limits[block.node]));
      block.says = `${data.names[block.job]} ${DOES[block.state]} on ${run.nodes[block.node]}, from ${block.from.toFixed(2)} s for ${(block.to - block.from).toFixed(2)} s; declared ${declared}`;
    }
    const lanes = run.nodes.flatMap((_, node) => LANES.map((name, index) => ({ node, name, y: y(index) - (lane / 2) * unit })));
    return (width, [from, to]) => {
      const shown = (mark) => mark.to > from && mark.from < to;
      const clipped = (mark) => ({ ...mark, x1: Math.max(mark.from, from), x2: Math.min(mark.to, to) });
      const blocks = run.blocks.filter(shown).map(clipped);
      const steps = run.steps.filter(shown).map(clipped);
      const pixels = (width - margins.marginLeft - margins.marginRight) / (to - from);
      const named = blocks.filter(
        (block) =>
          block.state === "running" &&
          (block.x2 - block.x1) * pixels > 6.6 * data.names[block.job].length + 5 &&
          (block.high - block.low) / unit > 14,
      );
      const inset = blocks.length > 1500 ? 0 : 0.4;
      const stopped = (block) => block.state !== "running";
      const moving = (block) => block.state === "coming" || block.state === "leaving";
      const fill = (block) => `var(--j${block.job})`;
      const edges = { x1: "x1", x2: "x2", y1: "low", y2: "high", fy: "node", insetLeft: inset, insetRight: inset, insetTop: 0.5, insetBottom: 0.5 };
      const place = { x1: "x1", x2: "x2", y1: (step) => y(LANES.indexOf(step.lane)), y2: (step) => y(LANES.indexOf(step.lane)) - lane * unit, fy: "node" };
      const svg = Plot.plot({
        ...identity, ...margins, width,
        height: 34 + run.nodes.length * (band - bottom / unit + 12),
        marginTop: 8, marginBottom: 26,
        x: { domain: [from, to], label: null },
        y: { domain: [bottom, top], axis: null },
        fy: { domain: run.nodes.map((_, node) => node), axis: null, padding: 0.06 },
        marks: [
          Plot.axisX({ anchor: "bottom", tickFormat: seconds, tickSize: 0, ticks: Math.max(3, Math.round(width / 110)), ariaHidden: true }),
          Plot.gridX({ strokeOpacity: 0.09, ticks: Math.max(3, Math.round(width / 110)) }),
          Plot.rect(run.nodes, { x1: from, x2: to, y1: 0, y2: 1, fy: (_, node) => node, fill: "var(--raised)", ariaHidden: true }),
          Plot.rect(blocks, { ...edges, rx: 2, fill, fillOpacity: (block) => (stopped(block) ? 0.36 : 1), className: "blocks" }),
          Plot.rect(blocks.filter(moving), { ...edges, fill: "url(#moving)", ariaHidden: true, pointerEvents: "none" }),
          Plot.text(named, { x: (block) => (block.x1 + block.x2) / 2, y: (block) => (block.low + block.high) / 2, fy: "node", text: (block) => data.names[block.job], fill: "var(--on-job)", fontSize: 11.5, fontWeight: 550, ariaHidden: true, pointerEvents: "none" }),
          Plot.ruleY(run.nodes, { y: 1, fy: (_, node) => node, strokeWidth: 1.2, ariaHidden: true }),
          Plot.rect(steps, { ...place, fill: (step) => (step.hidden ? "var(--hidden)" : "var(--exposed)"), className: "steps" }),
          Plot.text(run.nodes, { frameAnchor: "left", y: 1, dx: -12, dy: 8, fy: (_, node) => node, text: (name) => name, textAnchor: "end", fontWeight: 650, fontSize: 13, ariaHidden: true }),
          Plot.text(run.nodes, { frameAnchor: "left", y: 1, dx: -12, dy: 24, fy: (_, node) => node, text: (_, node) => mib(run.limits[node]), textAnchor: "end", fill: "var(--quiet)", ariaHidden: true }),
          Plot.text(lanes, { frameAnchor: "left", y: "y", dx: -12, fy: "node", text: "name", textAnchor: "end", fill: "var(--quiet)", fontSize: 11, ariaHidden: true }),
        ],
      });
      svg.insertAdjacentHTML("afterbegin", '<defs><pattern id="moving" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="2" height="4" fill="var(--page)" fill-opacity=".75"/></pattern></defs>');
      return { svg, marks: { blocks, steps } };
    };
  }

  function memory(run) {
    const rows = run.memory.flatMap((curve) =>
      curve.jobs.flatMap((held) => curve.at.map((at, index) => ({ node: curve.node, job: held.job, at, used: held.used[index] }))),
    );
    const nodes = run.memory.map((curve) => curve.node);
    const instants = run.memory.flatMap((curve) =>
      curve.at.map((at, index) => {
        const held = curve.jobs.filter((job) => job.used[index] > 0).map((job) => `${data.names[job.job]} ${mib(job.used[index])}`);
        return { node: curve.node, at, used: curve.used[index], says: `${run.nodes[curve.node]} at ${at.toFixed(1)} s: ${mib(curve.used[index])} of ${mib(run.limits[curve.node])}\n${held.join("\n")}` };
      }),
    );
    const most = Math.max(...run.limits, ...instants.map((instant) => instant.used));
    return (width, [from, to]) => {
      const svg = Plot.plot({
        ...identity, ...margins, width,
        height: 34 + nodes.length * Math.max(70, Math.min(150, 600 / nodes.length)),
        marginTop: 8, marginBottom: 26,
        x: { domain: [from, to], label: null },
        y: { domain: [0, most * 1.22], axis: null },
        fy: { domain: nodes, axis: null, padding: 0.14 },
        marks: [
          Plot.axisX({ anchor: "bottom", tickFormat: seconds, tickSize: 0, ticks: Math.max(3, Math.round(width / 110)), ariaHidden: true }),
          Plot.gridX({ strokeOpacity: 0.09, ticks: Math.max(3, Math.round(width / 110)) }),
          Plot.areaY(rows, { x: "at", y: "used", z: "job", fy: "node", fill: (row) => `var(--j${row.job})`, order: "job", clip: true, className: "areas", ariaHidden: true }),
          Plot.ruleY(nodes, { y: 0, fy: (node) => node, strokeOpacity: 0.5, ariaHidden: true }),
          Plot.ruleY(nodes, { y: (node) => run.limits[node], fy: (node) => node, stroke: "var(--exposed)", strokeWidth: 1.5, strokeDasharray: "5 3", ariaHidden: true }),
          Plot.text(nodes, { frameAnchor: "right", y: (node) => run.limits[node], dy: -8, fy: (node) => node, text: (node) => `limit ${mib(run.limits[node])}`, textAnchor: "end", fill: "var(--exposed)", ariaHidden: true }),
          Plot.axisY(d3.ticks(0, most, 3).filter((tick) => tick < most * 0.95), { tickSize: 0, label: null, tickFormat: mib, fill: "var(--quiet)", dx: -8, ariaHidden: true }),
          Plot.text(nodes, { frameAnchor: "left", y: most, dx: -12, dy: -10, fy: (node) => node, text: (node) => run.nodes[node], textAnchor: "end", fontWeight: 650, fontSize: 13, ariaHidden: true }),
          Plot.ruleX(instants, Plot.pointerX({ x: "at", fy: "node", strokeOpacity: 0.6 })),
        ],
      });
      svg.addEventListener("input", (event) => {
        const box = svg.getBoundingClientRect();
        if (svg.value) tell(svg.value.says, box.left + svg.scale("x").apply(svg.value.at), box.top + svg.scale("fy").apply(svg.value.node) + 60);
        else hush();
      });
      return { svg, marks: {}, areas: nodes.flatMap(() => run.memory[0].jobs.map((held) => held.job)) };
    };
  }

  function bars(runs) {
    const marks = data.bars.filter((bar) => runs.includes(bar.run));
    const jobs = [...new Set(marks.map((bar) => bar.job))];
    const several = runs.length > 1;
    const left = 20 + 7.2 * Math.max(...(several ? jobs.concat(runs) : jobs).map((name) => name.length), 4);
    return (width) => {
      const svg = Plot.plot({
        ...identity, width,
        marginLeft: left, marginRight: several ? left : 10, marginTop: 6, marginBottom: 26,
        height: 34 + jobs.length * (several ? 17 * runs.length + 6 : 24),
        x: { label: null },
        y: several ? { domain: runs, label: null, padding: 0.12 } : { domain: jobs, label: null, padding: 0.18 },
        fy: several ? { domain: jobs, label: null, padding: 0.12 } : undefined,
        marks: [
          Plot.axisX({ anchor: "bottom", tickFormat: seconds, tickSize: 0, ariaHidden: true }),
          Plot.gridX({ strokeOpacity: 0.12 }),
          several ? Plot.axisFy({ anchor: "right", label: null, textAnchor: "start", fontWeight: 650, ariaHidden: true }) : null,
          Plot.axisY({ tickSize: 0, label: null, ariaHidden: true }),
          Plot.barX(marks, Plot.stackX({ x: "seconds", y: several ? "run" : "job", fy: several ? "job" : undefined, z: "part", order: PARTS, fill: (bar) => `var(--${bar.part})`, insetRight: 0.5, rx: 1, className: "bars" })),
          Plot.ruleX([0]),
        ],
      });
      return { svg, marks: { bars: marks } };
    };
  }

  // Makespans of policies: medians, from the fastest run to the slowest.
  function arms(rows) {
    const left = 20 + 7.2 * Math.max(...rows.map((row) => row.name.length));
    const end = (row) => row.max ?? row.median;
    return (width) => {
      const svg = Plot.plot({
        ...identity, width,
        marginLeft: left, marginRight: 64, marginTop: 6, marginBottom: 26,
        height: 34 + rows.length * 30,
        x: { label: null },
        y: { domain: rows.map((row) => row.name), label: null, padding: 0.24 },
        marks: [
          Plot.axisX({ anchor: "bottom", tickFormat: seconds, tickSize: 0, ariaHidden: true }),
          Plot.gridX({ strokeOpacity: 0.12 }),
          Plot.axisY({ tickSize: 0, label: null, ariaHidden: true }),
          Plot.barX(rows, { x: "median", y: "name", fill: (row) => (row.best ? "var(--running)" : "var(--suspended)"), rx: 2, className: "arms" }),
          Plot.ruleY(rows, { x1: "min", x2: "max", y: "name", stroke: "var(--ink)", strokeWidth: 2, ariaHidden: true }),
          Plot.text(rows, { x: end, y: "name", text: (row) => `${row.median.toFixed(1)} s`, textAnchor: "start", dx: 8, ariaHidden: true }),
          Plot.ruleX([0]),
        ],
      });
      return { svg, marks: { arms: rows } };
    };
  }

  // --- what is said of a mark, to pointer and keyboard alike

  const tip = document.getElementById("tip");
  function tell(text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - width - 8))}px`;
    tip.style.top = `${y + 14 + height > innerHeight ? Math.max(4, y - height - 10) : y + 14}px`;
  }
  function tellOf(mark) {
    const box = mark.getBoundingClientRect();
    tell(mark.getAttribute("aria-label"), box.left + Math.min(box.width / 2, 200), box.bottom - 8);
  }
  function hush() {
    tip.hidden = true;
  }

  // Names the marks of a chart. One of them is a stop of the tab key; arrow keys go on from there.
  function name(chart, { svg, marks }) {
    chart.items = [];
    for (const [group, rows] of Object.entries(marks)) {
      for (const element of svg.querySelectorAll(`g.${group} rect, g.${group} path`)) {
        const row = rows[element.__data__];
        element.classList.add("mark-item");
        element.setAttribute("role", "img");
        element.setAttribute("aria-label", row.says);
        element.setAttribute("tabindex", "-1");
        if (row.job !== undefined) element.dataset.job = row.job;
        chart.items.push({ element, order: [row.node ?? 0, row.lane ? 1 : 0, row.from ?? 0] });
      }
    }
    const by = (index) => (a, b) => d3.ascending(a.order[index], b.order[index]);
    chart.items.sort((a, b) => by(0)(a, b) || by(1)(a, b) || by(2)(a, b));
    chart.current = 0;
    chart.items[0]?.element.setAttribute("tabindex", "0");
  }

  // On the place and not on the picture: Chromium gives the focus to an SVG that listens to it.
  function listen(chart) {
    const { place } = chart;
    const go = (index) => {
      chart.items[chart.current].element.setAttribute("tabindex", "-1");
      chart.current = Math.max(0, Math.min(chart.items.length - 1, index));
      chart.items[chart.current].element.setAttribute("tabindex", "0");
      chart.items[chart.current].element.focus();
    };
    place.addEventListener("keydown", (event) => {
      const { current, items } = chart;
      const next = { ArrowRight: current + 1, ArrowDown: current + 1, ArrowLeft: current - 1, ArrowUp: current - 1, Home: 0, End: items.length - 1 }[event.key];
      if (event.key === "Escape") hush();
      if (next === undefined || items.length === 0) return;
      event.preventDefault();
      go(next);
    });
    place.addEventListener("focusin", ({ target }) => tellOf(target));
    place.addEventListener("focusout", hush);
    place.addEventListener("pointermove", ({ target, clientX, clientY }) => {
      if (target.classList.contains("mark-item")) tell(target.getAttribute("aria-label"), clientX, clientY);
      else if (chart.items.length > 0) hush();
    });
    place.addEventListener("pointerleave", hush);
  }

  // --- drawing, again where the width, the stretch of time or the chosen job changes

  function draw(chart) {
    const width = Math.max(480, chart.place.clientWidth);
    const drawn = chart.plot(width, chart.view.stretch);
    drawn.svg.setAttribute("role", "group");
    drawn.svg.setAttribute("aria-label", chart.label);
    name(chart, drawn);
    drawn.svg.querySelectorAll("g.areas path").forEach((area, index) => (area.dataset.job = drawn.areas[index]));
    dim(drawn.svg, chart.view.only);
    chart.place.replaceChildren(drawn.svg);
    chart.width = width;
  }

  function dim(svg, only) {
    for (const element of svg.querySelectorAll("[data-job]")) element.classList.toggle("dim", only !== null && element.dataset.job !== only);
  }

  function zoom(view, how) {
    const [from, to] = view.stretch;
    const [length, middle] = [to - from, (from + to) / 2];
    const next = { in: length / 2, out: length * 2, all: view.end, earlier: length, later: length }[how];
    const centre = middle + ({ earlier: -length / 2, later: length / 2 }[how] ?? 0);
    const span = Math.min(view.end, Math.max(next, view.end / 1024));
    const begin = Math.max(0, Math.min(centre - span / 2, view.end - span));
    view.stretch = [begin, begin + span];
  }

  for (const article of document.querySelectorAll("article")) {
    const run = data.runs[article.dataset.run];
    const view = { stretch: [0, run.end || 1], end: run.end || 1, only: null };
    const mine = [];
    const add = (name, plot) => {
      const figure = article.querySelector(`figure[data-chart="${name}"]`);
      if (figure) mine.push({ place: figure.querySelector(".chart"), label: figure.dataset.label, plot, view });
    };
    if (run.blocks.length) add("matrix", matrix(run));
    if (run.memory.length) add("memory", memory(run));
    if (data.bars.length) add("bars", bars([data.bars[0].run]));
    charts.push(...mine);
    const tools = article.querySelector(".bar-of-tools");
    tools.hidden = false;
    const buttons = [...tools.querySelectorAll("[data-zoom]")];
    const able = () => {
      for (const button of buttons) {
        const whole = view.stretch[1] - view.stretch[0] >= view.end;
        button.disabled = whole && button.dataset.zoom !== "in";
      }
    };
    able();
    for (const button of buttons) {
      button.addEventListener("click", () => {
        zoom(view, button.dataset.zoom);
        able();
        mine.filter((chart) => chart.place.parentElement.dataset.chart !== "bars").forEach(draw);
      });
    }
    for (const button of tools.querySelectorAll("[data-job]")) {
      button.addEventListener("click", () => {
        view.only = view.only === button.dataset.job ? null : button.dataset.job;
        for (const other of tools.querySelectorAll("[data-job]")) other.setAttribute("aria-pressed", String(other.dataset.job === view.only));
        mine.forEach((chart) => dim(chart.place, view.only));
      });
    }
  }
  const compared = document.querySelector('#comparison figure[data-chart="bars"]');
  if (compared && data.bars.length) {
    const runs = [...new Set(data.bars.map((bar) => bar.run))];
    charts.push({ place: compared.querySelector(".chart"), label: compared.dataset.label, plot: bars(runs), view: { stretch: [0, 1], only: null } });
  }

  const policies = document.querySelector('figure[data-chart="arms"]');
  if (policies && data.arms?.length) charts.push({ place: policies.querySelector(".chart"), label: policies.dataset.label, plot: arms(data.arms), view: { stretch: [0, 1], only: null } });

  for (const chart of charts) {
    listen(chart);
    draw(chart);
  }
  let resized;
  addEventListener("resize", () => {
    cancelAnimationFrame(resized);
    resized = requestAnimationFrame(() => charts.filter((chart) => Math.max(480, chart.place.clientWidth) !== chart.width).forEach(draw));
  });
  // A mark that gets the focus may be scrolled to: what is said of it goes with it.
  const focused = () => document.activeElement?.classList.contains("mark-item");
  addEventListener("scroll", () => (focused() && !tip.hidden ? tellOf(document.activeElement) : hush()), { passive: true });

  // --- colours

  const theme = document.querySelector(".theme");
  theme.hidden = false;
  const wear = (value) => {
    if (value === "auto") delete root.dataset.theme;
    else root.dataset.theme = value;
  };
  theme.addEventListener("change", (event) => wear(event.target.value));

  root.dataset.drawn = performance.now().toFixed(0);
})();

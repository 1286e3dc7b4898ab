// Draws every .chart of the page from the JSON in #page-data. No network, no eval (Vega's own interpreter).
"use strict";
(() => {
  const page = JSON.parse(document.getElementById("page-data").textContent);
  const text = { labelColor: "var(--muted)", titleColor: "var(--muted)", labelFontSize: 12, titleFontSize: 12, titleFontWeight: 400 };
  const config = {
    background: null,
    font: "system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif",
    view: { stroke: null },
    axis: { ...text, gridColor: "var(--line)", domainColor: "var(--line)", tickColor: "var(--line)", labelOverlap: true, labelFlush: true },
    axisX: { grid: false, tickCount: 6 },
    axisY: { domain: false, ticks: false, labelPadding: 6, tickCount: 4 },
  };
  const options = { renderer: "svg", actions: false, ast: true, tooltip: { theme: "custom" } };
  const rowsOf = (key) => {
    const levels = page.timeline.levels[key], names = Object.keys(levels);
    return page.timeline.t.map((t, i) => names.reduce((row, name) => ((row[name] = levels[name][i]), row), { t }));
  };
  const overTime = [];
  const draw = async (node) => {
    const spec = { ...page.charts[node.id], width: "container", autosize: { type: "fit-x", contains: "padding" }, config };
    const named = spec.data.name === "timeline";
    if (named) spec.data = { name: "timeline", values: rowsOf(page.shown) };
    const { view } = await window.vegaEmbed(node, spec, options);
    if (named) overTime.push(view);
  };
  document.querySelectorAll(".chart").forEach((node) => draw(node).catch((error) => { node.textContent = `This chart could not be drawn: ${error.message}`; }));
  const choice = document.getElementById("replica");
  if (choice) choice.addEventListener("change", () => overTime.forEach((view) => view.data("timeline", rowsOf(choice.value)).runAsync()));
})();

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
  const at = (column, i) => (Array.isArray(column) ? column[i] : column);
  const rowsOf = ({ t, levels }, key) => [levels[key]].flat().flatMap((columns) =>
    t.map((t, i) => Object.keys(columns).reduce((row, name) => ((row[name] = at(columns[name], i)), row), { t })));
  const overTime = [];
  // What was given to the view, not what its transforms made of it; of several the largest, which the others are marks in.
  const given = (view) => Object.values(view.getState({ data: (set) => /^source_\d+$/.test(set), signals: () => false }).data);
  const csv = (view, name) => {
    const rows = name ? view.data(name) : given(view).reduce((most, set) => (set.length > most.length ? set : most), []);
    const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
    const cell = (value) => (value === null || value === undefined ? "" : /[",\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
    return [names.join(","), ...rows.map((row) => names.map((name) => cell(row[name])).join(","))].join("\n") + "\n";
  };
  const save = (name, text, type) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  };
  const inked = (svg) => svg.replace(/var\((--\w+)\)/g, (_, name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  const saving = (node, view, name) => {
    const line = document.createElement("p");
    line.className = "save";
    const button = (title, act) => {
      const found = document.createElement("button");
      found.textContent = title;
      found.title = `save ${node.id}.${title.toLowerCase()}`;
      found.addEventListener("click", act);
      line.append(found);
    };
    button("SVG", async () => save(`${node.id}.svg`, inked(await view.toSVG()), "image/svg+xml"));
    button("CSV", () => save(`${node.id}.csv`, csv(view, name), "text/csv"));
    return line;
  };
  const draw = async (node) => {
    const spec = { ...page.charts[node.id], width: "container", autosize: { type: "fit-x", contains: "padding" }, config };
    const { name } = spec.data, series = page.series[name];
    if (name) spec.data = { name, values: rowsOf(series, series.shown) };
    const { view } = await window.vegaEmbed(node, spec, options);
    node.append(saving(node, view, name));
    if (name) overTime.push({ name, view });
  };
  document.querySelectorAll(".chart").forEach((node) => draw(node).catch((error) => { node.textContent = `This chart could not be drawn: ${error.message}`; }));
  document.querySelectorAll("select").forEach((choice) => choice.addEventListener("change", () => {
    const names = choice.dataset.of.split(" ");
    overTime.filter(({ name }) => names.includes(name)).forEach(({ name, view }) => view.data(name, rowsOf(page.series[name], choice.value)).runAsync());
  }));
})();

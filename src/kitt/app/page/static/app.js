// The page: three views (start, table, job), distinguished by the address: "", "#example/name", "#table" and "#job/id".
const $ = (id) => document.getElementById(id);
const LIBRARIES = { gpytorch: "GPyTorch", botorch: "BoTorch", sklearn: "scikit-learn", gpflow: "GPflow", gpjax: "GPJax" };
const KEPT_BYTES = 2e6; // a table up to this size survives a reload

let limits = { max_bytes: Infinity }; // what the server takes
let file = null; // the table in view
let facts = null; // what the server says about it
let source = null; // events of the job in view
let clock = null; // when its fit began
let asked = 0; // numbers the questions, so that a late answer is not taken for the latest

// --- small tools

function element(tag, text, attributes = {}) {
  const made = Object.assign(document.createElement(tag), attributes);
  if (text !== undefined) made.textContent = text;
  return made;
}

function complain(message) {
  $("error").textContent = message;
  $("error").hidden = !message;
  if (message) $("error").scrollIntoView({ block: "nearest" });
}

function show(view, title) {
  for (const id of ["start", "table", "job"]) $(id).hidden = id !== view;
  if (view !== "job") $("report").hidden = true;
  if (view === "start") $("captions").hidden = true;
  $("another").hidden = view === "start";
  document.title = title ? `${title} · KITT` : "KITT";
  complain("");
}

async function call(url, options) {
  let response;
  try {
    response = await fetch(url, options);
  } catch {
    throw new Error("The server does not answer: is kitt serve still running?");
  }
  if (response.ok) return response.status === 204 ? null : response.json();
  const body = await response.json().catch(() => null);
  const message = body?.error?.message ?? `The server refused (${response.status}).`;
  throw Object.assign(new Error(message[0].toUpperCase() + message.slice(1)), { status: response.status });
}

const counted = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;
const percent = (p) => (p >= 0.9995 ? "100 %" : `${(100 * p).toFixed(1)} %`);

// --- the first view

async function showStart() {
  limits = await call("/api/limits");
  $("limits").textContent = `up to ${limits.max_bytes / 1e6} MB, ${counted(limits.max_rows, "row")} and ${counted(limits.max_columns, "column")}`;
  const examples = await call("/api/examples");
  $("examples").replaceChildren(...examples.map(({ name, title, about }) => {
    const link = element("a", undefined, { href: `#example/${name}` });
    link.append(element("strong", title), about);
    const item = element("li");
    item.append(link);
    return item;
  }));
}

async function take(chosen) {
  complain("");
  if (chosen.size > limits.max_bytes) {
    complain(`${chosen.name} has ${(chosen.size / 1e6).toFixed(1)} MB; at most ${limits.max_bytes / 1e6} are taken: send fewer rows.`);
    return;
  }
  await keep(chosen);
  await open(chosen, "#table");
}

async function keep(chosen) {
  sessionStorage.removeItem("table");
  if (chosen.size > KEPT_BYTES) return;
  const bytes = new Uint8Array(await chosen.arrayBuffer());
  const text = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  try {
    sessionStorage.setItem("table", JSON.stringify({ name: chosen.name, text: btoa(text) }));
  } catch { /* no room: a reload asks for the file again */ }
}

function kept() {
  const { name, text } = JSON.parse(sessionStorage.getItem("table") ?? "{}");
  return text === undefined ? null : new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name);
}

// --- the table

async function open(chosen, address) {
  const form = new FormData();
  form.append("file", chosen);
  facts = await call("/api/table", { method: "POST", body: form });
  file = chosen;
  if (location.hash !== address) history.pushState(null, "", address);
  showTable();
}

function showTable() {
  show("table", facts.name);
  $("table-title").textContent = facts.name;
  $("table-facts").textContent = [`${counted(facts.rows, "row")}, ${counted(facts.columns.length, "column")}`, ...facts.notes].join("; ");
  const numbers = facts.columns.filter((column) => column.is_number);
  const chosen = (numbers.length ? numbers : facts.columns).at(-1).name;
  $("target").replaceChildren(...facts.columns.map(({ name }) => element("option", name, { value: name, selected: name === chosen })));
  $("inputs").replaceChildren(...facts.columns.map(({ name }) => {
    const label = element("label");
    label.append(element("input", undefined, { type: "checkbox", value: name, checked: true }), name);
    return label;
  }));
  showSeries(chosen);
  $("missing").hidden = facts.incomplete_rows === 0;
  $("drop-missing").checked = facts.incomplete_rows > 0;
  $("missing").lastElementChild.textContent = `Leave out ${counted(facts.incomplete_rows, "row")} with missing values`;
  const head = element("tr");
  head.append(...facts.columns.map(({ name }) => element("th", name, { scope: "col" })));
  $("preview").replaceChildren(head, ...facts.preview.map((cells) => {
    const row = element("tr");
    row.append(...cells.map((cell) => element("td", cell)));
    return row;
  }));
  $("main").focus({ preventScroll: true });
  chooseTask();
}

// The same table as a series: its first column of times, and the target beside it
function showSeries(chosen) {
  const first = facts.columns.find((column) => column.is_time && column.name !== chosen);
  const time = first?.name ?? "";
  const task = first && !first.is_number ? "forecast" : "fit"; // a table with dates is probably a series
  $("task").querySelector(`input[value=${task}]`).checked = true;
  $("series-target").replaceChildren(...facts.columns.map(({ name }) => element("option", name, { value: name, selected: name === chosen })));
  $("time").replaceChildren(
    element("option", "none: rows follow each other", { value: "", selected: time === "" }),
    ...facts.columns.map(({ name }) => element("option", name, { value: name, selected: name === time })),
  );
  $("known").replaceChildren(...facts.columns.map(({ name }) => {
    const label = element("label");
    label.append(element("input", undefined, { type: "checkbox", value: name }), name);
    return label;
  }));
}

const isForecast = () => $("task").querySelector("input:checked").value === "forecast";

function chooseTask() {
  complain("");
  $("question").hidden = isForecast();
  $("series").hidden = !isForecast();
  $("captions").hidden = true;
  asked += 1; // what was asked before is no longer waited for
  if (isForecast()) chooseSeries();
  else suggest();
}

// A column has one role: it is not among those known in the future if it is forecast or the time
function chooseSeries() {
  for (const box of $("known").querySelectorAll("input")) {
    box.parentElement.hidden = [$("series-target").value, $("time").value].includes(box.value);
  }
  const { name, series } = facts.columns.find((column) => column.name === $("series-target").value);
  const drawn = { column: "the rows", x: series.map(([row]) => row + 1), y: series.map(([, value]) => value), levels: [], isLine: true };
  $("line").replaceChildren(...(series.length ? [scatter(drawn, name)] : []));
}

function seriesQuestion() {
  const form = new FormData();
  form.append("file", file);
  form.append("target", $("series-target").value);
  form.append("horizon", $("horizon").value);
  if ($("time").value) form.append("time", $("time").value);
  if ($("season").value) form.append("season", $("season").value);
  for (const box of $("known").querySelectorAll("input:checked")) {
    if (!box.parentElement.hidden) form.append("known", box.value);
  }
  return form;
}

function question() {
  const form = new FormData();
  form.append("file", file);
  form.append("target", $("target").value);
  form.append("k", $("k").value);
  form.append("drop_missing", $("drop-missing").checked);
  for (const box of $("inputs").querySelectorAll("input")) {
    const isTarget = box.value === $("target").value;
    box.parentElement.hidden = isTarget;
    if (!box.checked && !isTarget) form.append("exclude", box.value);
  }
  return form;
}

async function suggest() {
  const number = ++asked;
  $("captions").classList.add("stale");
  try {
    const answer = await call("/api/suggest", { method: "POST", body: question() });
    if (number !== asked) return;
    complain("");
    showCaptions(answer);
    $("fit").disabled = false;
  } catch (error) {
    if (number !== asked) return;
    $("captions").hidden = true;
    $("fit").disabled = true;
    $("columns").open = true;
    complain(error.message);
  }
}

// The data before anything is fitted: one small picture for each column
function scatter({ column, x, y, levels, isLine = false }, target) {
  const made = (tag, attributes, text = "") => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.textContent = text;
    return node;
  };
  const short = (value) => Number(value.toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 3 });
  const [left, right] = [Math.min(...x), Math.max(...x)];
  const [low, high] = [Math.min(...y), Math.max(...y)];
  const across = (value) => (44 + 184 * (value - left) / (right - left || 1)).toFixed(1);
  const down = (value) => (136 - 126 * (value - low) / (high - low || 1)).toFixed(1);
  const svg = made("svg", { viewBox: "0 0 240 158", role: "img", "aria-label": `${target} along ${column}` });
  svg.append(made("path", { d: "M38 4V142H236", class: "axes" }));
  if (isLine) svg.append(made("polyline", { points: x.map((value, i) => `${across(value)},${down(y[i])}`).join(" "), class: "line" }));
  else x.forEach((value, i) => svg.append(made("circle", { cx: across(value), cy: down(y[i]), r: 2 })));
  for (const value of [low, high]) svg.append(made("text", { x: 34, y: down(value), dy: 3, "text-anchor": "end" }, short(value)));
  const ticks = levels.length ? levels.map((name, i) => [i, name.slice(0, 12)]) : [left, right].map((value) => [value, short(value)]);
  if (ticks.length <= 4) {
    ticks.forEach(([at, text], i) => { // those at the ends grow inwards, so that none is cut off
      const [anchor, dx] = i === 0 ? ["start", -6] : i === ticks.length - 1 ? ["end", 8] : ["middle", 0];
      svg.append(made("text", { x: across(at), dx, y: 154, "text-anchor": anchor }, text));
    });
  }
  const figure = element("figure");
  figure.append(svg, element("figcaption", `${target} along ${column}`));
  return figure;
}

function meterRow(title, probability, ...more) {
  const row = element("tr");
  const cell = element("td");
  const meter = element("meter", undefined, { max: 1, value: probability }); // on the scale of all others
  meter.setAttribute("aria-hidden", "true");
  cell.append(meter, element("span", percent(probability)));
  row.append(title, cell, ...more);
  return row;
}

function propertyRow({ name, meaning, probability }) {
  const title = element("th", undefined, { scope: "row" });
  title.append(element("strong", name), " ", element("span", meaning, { className: "quiet" }));
  return meterRow(title, probability);
}

function showCaptions({ captions, target, seconds, warnings, properties, column_beliefs: beliefs, groups, scatters }, isFitting = false) {
  $("captions").hidden = false;
  $("captions").classList.remove("stale");
  $("captions-facts").textContent = `Kernels to try for ${target}, after ${(1000 * seconds.caption).toFixed(0)} ms; ${isFitting ? "the fits will follow" : "nothing is fitted yet"}.`;
  $("scatters").replaceChildren(...scatters.map((one) => scatter(one, target)));
  $("properties").replaceChildren(...properties.map(propertyRow));
  $("columns-said").hidden = beliefs === null;
  $("columns-rows").replaceChildren(...(beliefs?.said ?? []).map(propertyRow));
  const likeliest = [...captions].sort((a, b) => b.probability - a.probability);
  $("bars").replaceChildren(...likeliest.map(({ expression, probability, expected_loss: loss, is_first: isFirst }) => {
    const alike = groups.find(({ expressions }) => expressions.includes(expression))?.probability;
    const title = element("th", expression, { scope: "row" });
    if (isFirst) title.append(" ", element("span", "tried first", { className: "mark" }));
    return meterRow(title, probability, element("td", alike === undefined ? "–" : percent(alike)), element("td", loss === null ? "–" : loss.toFixed(2)));
  }));
  $("warnings").replaceChildren(...warnings.map((text) => element("li", text)));
}

function fit(event) {
  event.preventDefault();
  const form = question();
  form.append("deadline", $("deadline").value);
  start("/api/fit", form, $("fit"));
}

function forecast(event) {
  event.preventDefault();
  start("/api/forecast", seriesQuestion(), $("forecast"));
}

async function start(url, form, button) {
  button.disabled = true;
  try {
    const job = await call(url, { method: "POST", body: form });
    history.pushState(null, "", `#job/${job.id}`);
    showJob(job);
    $("main").focus({ preventScroll: true });
    scrollTo(0, 0);
    listen(job);
  } catch (error) {
    complain(error.message);
  } finally {
    button.disabled = false;
  }
}

// --- the job

function listen(job) {
  source?.close();
  if (!["queued", "running"].includes(job.state)) return;
  const events = new EventSource(job.links.events);
  source = events;
  events.onmessage = ({ data }) => {
    const now = JSON.parse(data);
    if (!["queued", "running"].includes(now.state)) events.close();
    if (source === events) showJob(now);
  };
  events.onerror = () => {
    if (source !== events) return;
    $("what").textContent = "The server does not answer; trying again.";
    if (events.readyState === EventSource.CLOSED) openJob(job.id);
  };
}

function showJob(job) {
  const { state, captions, target } = job;
  const isKernel = job.kind === "fit";
  show("job", target);
  $("report").hidden = state !== "done";
  $("job-title").textContent = { done: `The ${isKernel ? "kernel" : "forecast"} of ${target}`, failed: isKernel ? "No kernel" : "No forecast", cancelled: "Cancelled" }[state] ?? `${isKernel ? "Fitting" : "Forecasting"} ${target}`;
  $("job-facts").textContent = `${job.name}: ${counted(job.rows, "row")}${isKernel ? `, ${counted(captions.inputs, "input")}` : ""}`;
  $("progress").hidden = !["queued", "running"].includes(state);
  $("job-title").classList.toggle("visually-hidden", state === "done"); // the report has its own
  $("job-facts").hidden = state === "done";
  $("bar").value = Math.max(job.share, 0.02);
  const line = job.place === 1 ? "Next in the queue." : `Number ${job.place} in the queue.`;
  const what = state === "queued" ? line : `${job.what[0].toUpperCase()}${job.what.slice(1)}`;
  if ($("what").textContent !== what) $("what").textContent = what;
  clock = state === "running" ? performance.now() - 1000 * job.seconds : null;
  tick();
  if (isKernel) showCaptions(captions, true);
  $("captions").hidden = !isKernel || state === "done";
  if (state === "failed") complain(job.error.message);
  if (state === "cancelled") complain("This job was stopped, and its data are forgotten.");
  $("downloads").hidden = state !== "done";
  if (state === "done") showResult(job);
}

function tick() {
  $("clock").textContent = clock === null ? "" : `${((performance.now() - clock) / 1000).toFixed(0)} s`;
}

function cellsOf(line) { // of CSV, where a cell in quotes may hold commas, and quotes doubled
  return [...`,${line}`.matchAll(/,(?:"((?:[^"]|"")*)"|([^,]*))/g)].map(([, quoted, plain]) => quoted?.replaceAll('""', '"') ?? plain);
}

async function predict(chosen) {
  const url = $("new-rows").dataset.url;
  const form = new FormData();
  form.append("file", chosen);
  $("predicted").textContent = "Predicting …";
  $("predictions-box").hidden = true;
  try {
    const response = await fetch(url, { method: "POST", body: form });
    if (!response.ok) throw new Error((await response.json()).error.message);
    const text = await response.text();
    const lines = text.trim().split("\n");
    const link = element("a", "kitt-predictions.csv", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: "kitt-predictions.csv" });
    const notes = JSON.parse(response.headers.get("Kitt-Notes"));
    $("predicted").replaceChildren(`${counted(lines.length - 1, "row")} of ${chosen.name} predicted: `, link, ...notes.map((note) => ` (${note})`));
    $("predictions").replaceChildren(...lines.slice(0, 6).map((line, i) => {
      const row = element("tr");
      row.append(...cellsOf(line).map((cell) => element(i ? "td" : "th", i && cell !== "" && Number.isFinite(+cell) ? String(+(+cell).toPrecision(5)) : cell)));
      return row;
    }));
    $("predictions-box").hidden = false;
  } catch (error) {
    $("predicted").textContent = error.message;
  }
}

function showResult({ links }) {
  $("get-report").href = `${links.report}?download=true`;
  for (const [id, link] of [["get-values", links.values], ["get-model", links.model]]) {
    $(id).hidden = link === undefined;
    if (link) $(id).href = link;
  }
  for (const id of ["code-group", "new-rows-box"]) $(id).hidden = links.predict === undefined;
  $("predictions-box").hidden ||= links.predict === undefined;
  $("new-rows").dataset.url = links.predict ?? "";
  $("get-code").replaceChildren(...Object.entries(LIBRARIES).filter(([library]) => library in links).map(([library, title]) => {
    const link = element("a", title, { href: links[library], className: "button" });
    link.setAttribute("download", "");
    return link;
  }));
  const frame = $("report");
  if (frame.dataset.of === links.report) return;
  frame.dataset.of = links.report;
  frame.contentWindow.location.replace(links.report); // no entry of its own in the history
}

function fitFrame() {
  const page = $("report").contentDocument?.documentElement;
  if (!page || !$("report").dataset.of) return;
  const measure = () => { $("report").style.height = `${page.querySelector("body").scrollHeight + 4}px`; };
  new ResizeObserver(measure).observe(page.querySelector("body"));
  measure();
}

async function openJob(id) {
  try {
    const job = await call(`/api/jobs/${encodeURIComponent(id)}`);
    if (location.hash !== `#job/${id}`) return;
    showJob(job);
    listen(job);
  } catch (error) {
    show("start");
    complain(error.status === 404 ? "This job is gone: it was cancelled, or half an hour has passed." : error.message);
  }
}

async function cancel() {
  const id = location.hash.slice("#job/".length);
  source?.close();
  source = null;
  try {
    await call(`/api/jobs/${encodeURIComponent(id)}`, { method: "DELETE" });
  } catch (error) {
    if (error.status !== 404) return complain(error.message);
  }
  if (file) history.back();
  else location.hash = "";
}

// --- which view

async function route() {
  const [view, name] = location.hash.slice(1).split("/");
  source?.close();
  source = null;
  try {
    if (view === "job") return await openJob(name);
    if (view === "example") {
      if (facts && file?.example === name) return showTable();
      const response = await fetch(`/api/examples/${encodeURIComponent(name)}`);
      if (!response.ok) throw new Error("There is no such example.");
      const chosen = new File([await response.blob()], `${name}.csv`);
      chosen.example = name;
      return await open(chosen, location.hash);
    }
    if (view === "table") {
      if (facts && file && !file.example) return showTable();
      const chosen = kept();
      if (chosen) return await open(chosen, "#table");
    }
    show("start");
  } catch (error) {
    show("start");
    complain(error.message);
  }
}

function dropped(event) {
  event.preventDefault();
  document.body.classList.remove("over");
  if (event.dataTransfer.files.length) taken(event.dataTransfer.files[0]);
}

function taken(chosen) {
  take(chosen).catch((error) => complain(error.message));
}

$("skip").addEventListener("click", (event) => { event.preventDefault(); $("main").focus(); });
$("file").addEventListener("change", ({ target }) => {
  if (target.files.length) taken(target.files[0]);
  target.value = ""; // the same file may be chosen again
});
$("new-rows").addEventListener("change", ({ target }) => {
  if (target.files.length) predict(target.files[0]);
  target.value = "";
});
addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("over"); });
addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("over"); });
addEventListener("drop", dropped);
addEventListener("popstate", route);
$("question").addEventListener("change", suggest);
$("question").addEventListener("submit", fit);
$("task").addEventListener("change", chooseTask);
$("series").addEventListener("change", chooseSeries);
$("series").addEventListener("submit", forecast);
$("cancel").addEventListener("click", cancel);
$("report").addEventListener("load", fitFrame);
setInterval(tick, 1000);
for (const claim of document.querySelectorAll(".local")) claim.hidden = !["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
showStart().catch((error) => complain(error.message));
route();

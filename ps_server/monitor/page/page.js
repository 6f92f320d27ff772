// Asks /status.json a few times a second and shows what it says. Sentences about the job's state
// come from the server, which words them for every page and for cairnctl.
import {Chart} from "./chart.js";

// The server calls a worker missing after 1.4 s (thrift/job_state.h); so this shows it within 2 s.
const POLL_MS = 400;
const POLL_HIDDEN_MS = 5000;
const REQUEST_MS = 3000;
const MOST_SAMPLES = 900;

const element = (id) => document.getElementById(id);

function countText(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return `${(value / 1e9).toFixed(size < 1e10 ? 1 : 0)}G`;
  if (size >= 1e6) return `${(value / 1e6).toFixed(size < 1e7 ? 1 : 0)}M`;
  if (size >= 1e4) return `${(value / 1e3).toFixed(size < 1e5 ? 1 : 0)}k`;
  if (size >= 100 || Number.isInteger(value)) return value.toFixed(0);
  return value.toFixed(size < 10 ? 2 : 1);
}

function bytesText(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit + 1 < units.length) {
    bytes /= 1024;
    ++unit;
  }
  return `${bytes.toFixed(bytes < 10 && unit > 0 ? 1 : 0)} ${units[unit]}`;
}

function lossText(loss) {
  if (loss !== 0 && (Math.abs(loss) < 1e-3 || Math.abs(loss) >= 1e4)) return loss.toExponential(2);
  return Number(loss.toPrecision(4)).toString();
}

function secondsText(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${seconds.toFixed(0)} s`;
  if (seconds < 7200) return `${(seconds / 60).toFixed(0)} min`;
  return `${(seconds / 3600).toFixed(0)} h`;
}

function put(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

// A number, and under it what it is of.
function tile(id, text, detail, bad = false) {
  const target = element(id);
  const wanted = `${text}|${detail}`;
  target.classList.toggle("bad", bad);
  if (target.dataset.shown === wanted) return;
  target.dataset.shown = wanted;
  const small = document.createElement("small");
  small.textContent = detail;
  target.replaceChildren(text, small);
}

const charts = {
  loss: new Chart(element("chart-loss"), lossText, false),
  examples: new Chart(element("chart-examples"), countText, true),
  staleness: new Chart(element("chart-staleness"), countText, true),
  lag: new Chart(element("chart-lag"), countText, true),
};

let samples = [];
let boot = null;  // which start of the server they are of
let chosenJob = null;
let lastAnswer = performance.now();
let known = new Map();  // task -> whether it was missing, for what is read aloud

function takeSamples(status) {
  if (status.boot !== boot) {  // it counts from 1 again; what was asked for may leave some out
    const first = boot === null;
    boot = status.boot;
    samples = [];
    if (!first) return;
  }
  const last = samples.length > 0 ? samples[samples.length - 1].n : 0;
  samples.push(...status.samples.filter((sample) => sample.n > last));
  samples.splice(0, samples.length - MOST_SAMPLES);
}

function chooseJob(jobs) {
  const names = jobs.map((job) => job.name);
  const select = element("job");
  if ([...select.options].map((option) => option.value).join("\n") !== names.join("\n")) {
    select.replaceChildren(...names.map((name) => new Option(name, name)));
  }
  element("job-choice").hidden = names.length < 2;
  if (!names.includes(chosenJob)) {
    // One that trains, else any.
    const busy = jobs.find((job) => job.workers.some((worker) => worker.state === "live"));
    chosenJob = busy ? busy.name : names.length > 0 ? names[0] : null;
  }
  if (chosenJob !== null) select.value = chosenJob;
  return jobs.find((job) => job.name === chosenJob) ?? null;
}

function stateOf(worker) {
  if (worker.state === "lost") return ["lost", "bad"];
  if (worker.missing) return ["missing", "bad"];
  if (worker.servers_gone.length > 0) {
    return [`waits for ${worker.servers_gone.map((index) => `ps:${index}`).join(", ")}`, "warn"];
  }
  if (worker.state === "live") return ["training", "good"];
  if (worker.state === "finished") return ["no more steps", ""];
  if (worker.state === "left") return ["left", ""];
  return [worker.state, "warn"];
}

const SERVER_STATES = {serving: ["serving", "good"], opening: ["opening", "warn"],
                       stopping: ["stopping", "warn"], gone: ["gone", "bad"],
                       silent: ["does not answer", "bad"], refuses: ["refuses this page", "warn"],
                       reached: ["reached by workers", "good"], unknown: ["not known here", ""]};

const PHASES = {training: "good", finished: "good", starting: "warn", waiting: "warn",
                stalled: "bad", stopped: "warn"};

// A row: [text, class, label] a cell; the first is the row's head, the second its state. `page` is
// the address of the task's own page.
function rowOf(task, cells, missing, page) {
  const row = document.createElement("tr");
  row.dataset.task = task.split(" (")[0];
  row.classList.toggle("missing", missing);
  const head = document.createElement("th");
  head.scope = "row";
  if (page && /^https?:\/\//.test(page)) {
    const link = document.createElement("a");
    link.href = page;
    link.textContent = task;
    head.append(link);
  } else {
    head.textContent = task;
  }
  row.append(head);
  for (const [content, kind, label] of cells) {
    const cell = document.createElement("td");
    cell.className = kind;
    if (label) cell.dataset.label = label;
    cell.append(content);
    row.append(cell);
  }
  return row;
}

function pill([text, kind]) {
  const span = document.createElement("span");
  span.className = `pill ${kind}`;
  span.textContent = text;
  return span;
}

function serverRow(server) {
  const state = SERVER_STATES[server.state] ?? [server.state, ""];
  const where = server.gone_for.length > 0 ? `${server.address}: does not answer ` +
      `${server.gone_for.join(", ")}` +
      (server.gone_for_count > server.gone_for.length
          ? ` and ${server.gone_for_count - server.gone_for.length} more` : "")
      : server.error ? `${server.address}: ${server.error}` : server.address;
  const empty = ["", "number", ""];
  return rowOf(server.self ? `${server.task} (this)` : server.task,
      [[pill(state), "state", "State"], ["", "", ""], empty, empty, empty, empty, empty,
       [where, "where", ""]], server.state === "gone" || server.state === "silent", server.page);
}

function workerRow(worker, furthest) {
  const number = (value, text, label) =>
      [value === undefined || value === null ? "" : text(value), "number", label];
  const trains = worker.state === "live";
  return rowOf(worker.task, [
    [pill(stateOf(worker)), "state", "State"],
    [`${secondsText(worker.seconds_since_seen)} ago`, "", "Last seen"],
    number(worker.step, String, "Step"),
    number(trains ? furthest - worker.step : null, String, "Behind"),
    number(worker.loss, lossText, "Loss"),
    number(worker.staleness_mean, countText, "Staleness"),
    number(worker.durable_lag_pushes, countText, "Not durable"),
    [worker.origin, "where", ""]], worker.missing);
}

function showTasks(status, job) {
  const workers = job === null ? [] : job.workers;
  const furthest = Math.max(0, ...workers.filter((one) => one.state === "live").map((one) => one.step));
  element("tasks").tBodies[0].replaceChildren(
      ...status.servers.map(serverRow), ...workers.map((worker) => workerRow(worker, furthest)));
  const more = job === null ? 0 : job.worker_count - workers.length;
  element("more-workers").hidden = more === 0;
  put(element("more-workers"), `and ${more} workers more, which /metrics counts`);
  const now = new Map(workers.map((worker) => [worker.task, worker.missing]));
  const changed = [...now].filter(([task, missing]) => known.has(task) && known.get(task) !== missing);
  if (changed.length > 0) {
    put(element("changes"), changed.map(([task, missing]) =>
        missing ? `${task} is missing` : `${task} is back`).join(", "));
  }
  known = now;
}

function showTiles(status, job) {
  const workers = job === null ? [] : job.workers;
  const there = workers.filter((worker) => ["live", "joining", "finished"].includes(worker.state));
  const missing = workers.filter((worker) => worker.missing).length;
  tile("tile-workers", String(there.filter((worker) => !worker.missing).length),
       missing > 0 ? `${missing} missing` : "none missing", missing > 0);
  const latest = samples.length > 0 ? samples[samples.length - 1] : null;
  const rates = latest !== null && job !== null ? latest.jobs[job.name] : undefined;
  tile("tile-loss", rates && rates.loss !== null ? lossText(rates.loss) : "–", "last 100 steps");
  const rate = (key) => rates && rates[key] !== null ? countText(rates[key]) : "–";
  tile("tile-examples", rate("examples"), "a second");
  tile("tile-steps", rate("steps"), "a second");
  tile("tile-staleness", countText(status.staleness.mean), `updates; 99 % up to ${countText(status.staleness.p99)}`);
  const all = status.cluster;
  tile("tile-lag", job === null ? "–" : countText(all.durable_lag_pushes),
       status.seconds_since_snapshot === null ? "pushes; no snapshot yet"
           : `pushes; snapshot ${secondsText(status.seconds_since_snapshot)} ago`);
  const share = all.memory_used_bytes / all.memory_budget_bytes;
  tile("tile-memory", bytesText(all.memory_used_bytes),
       `${(share * 100).toFixed(0)} % of ${bytesText(all.memory_budget_bytes)}, ${serversText(all)}`,
       share > 0.9);
  tile("tile-disk", bytesText(all.disk_bytes), serversText(all));
}

// Which servers a sum is of.
function serversText(all) {
  if (all.servers === 1) return "1 server";
  if (!all.asked) return "this server";
  return all.answered === all.servers ? `${all.servers} servers`
      : `${all.answered} of ${all.servers} servers`;
}

function showState(state) {
  element("job-state").hidden = state === undefined || state.job === "";
  if (element("job-state").hidden) return;
  put(element("sentence"), state.sentence);
  element("job-state").className = `job-state ${PHASES[state.phase] ?? ""}`;
  element("progress").hidden = state.share_done === null;
  if (state.share_done !== null) element("progress").value = state.share_done;
  put(element("checkpoint"), state.seconds_since_checkpoint === null ? ""
      : `last checkpoint ${secondsText(state.seconds_since_checkpoint)} ago`);
}

function showCharts(job) {
  const ofJob = (key) => samples.map((sample) => {
    const rates = job === null ? undefined : sample.jobs[job.name];
    return [sample.t, rates === undefined ? null : rates[key]];
  });
  charts.loss.update(ofJob("loss"));
  charts.examples.update(ofJob("examples"));
  charts.lag.update(ofJob("lag"));
  charts.staleness.update(samples.map((sample) => [sample.t, sample.staleness]));
}

function showWaits(job) {
  const calls = job === null ? [] : job.waiting;
  const texts = calls.map((call) => `${secondsText(call.seconds)} at ${call.server}: ${call.text}`);
  if (texts.length === 0) texts.push("No call waits inside a server.");
  if (job !== null && job.waiting_count > calls.length) {
    texts.push(`and ${job.waiting_count - calls.length} more`);
  }
  element("waits").replaceChildren(...texts.map((text) => {
    const item = document.createElement("li");
    item.textContent = text;
    return item;
  }));
}

function banner(text) {
  element("banner").hidden = text === "";
  put(element("banner"), text);
}

function show(status) {
  document.title = `Cairn ${status.server}`;
  showState(status.job_state);
  put(element("server"), status.server);
  const [text, kind] = SERVER_STATES[status.state] ?? [status.state, ""];
  put(element("state"), text);
  element("state").className = `pill ${kind}`;
  banner(status.failure ?? "");
  if (status.state !== "serving") {
    element("tasks").tBodies[0].replaceChildren(...status.servers.map(serverRow));
    return;
  }
  const fresh = status.samples.length > 0;
  takeSamples(status);
  const before = chosenJob;
  const job = chooseJob(status.jobs);
  put(element("job-text"), job === null ? "no job yet"
      : `${job.name} · ${job.consistency} · ${status.cluster.variables} variables, ` +
        `${countText(status.cluster.rows)} rows` +
        (status.job_count > status.jobs.length
            ? ` · ${status.job_count - status.jobs.length} jobs more, not shown` : ""));
  showTiles(status, job);
  showTasks(status, job);
  if (fresh || before !== chosenJob) showCharts(job);
  showWaits(job);
  put(element("server-facts"), `up ${secondsText(status.uptime_seconds)} · ` +
      `${status.connections} connections · durability ${status.durability} · a lease lasts ${secondsText(status.lease_seconds)}`);
}

async function poll() {
  try {
    const after = samples.length > 0 ? samples[samples.length - 1].n : 0;
    const job = chosenJob === null ? "" : `&job=${encodeURIComponent(chosenJob)}`;
    const reply = await fetch(`/status.json?after=${after}${job}`,
                              {cache: "no-store", signal: AbortSignal.timeout(REQUEST_MS)});
    if (!reply.ok) throw new Error(`status ${reply.status}`);
    show(await reply.json());
    lastAnswer = performance.now();
    document.body.dataset.polls = String(Number(document.body.dataset.polls ?? 0) + 1);
  } catch (error) {
    const seconds = (performance.now() - lastAnswer) / 1000;
    if (seconds > 1) banner(`This server has not answered for ${secondsText(seconds)} (${error.message})`);
  }
  setTimeout(poll, document.hidden ? POLL_HIDDEN_MS : POLL_MS);
}

element("job").addEventListener("change", (event) => {
  chosenJob = event.target.value;
  showCharts({name: chosenJob});
});
document.addEventListener("visibilitychange", () => { lastAnswer = performance.now(); });
poll();

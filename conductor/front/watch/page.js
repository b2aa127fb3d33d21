"use strict";
/* Shows the events of /admin/events. All that comes from outside is set as
   text; nothing here makes markup of text. */
(() => {
const $ = (id) => document.getElementById(id);
const STORED = "conductor-admin-key";
const SPAN = "conductor-span";
const WAIT_MS = 2000;
const OPEN_KEPT = 8;

function element(name, properties, ...children) {
  const made = document.createElement(name);
  Object.assign(made, properties);
  made.append(...children);
  return made;
}

function drawn(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes))
    made.setAttribute(key, value);
  if (text !== undefined)
    made.textContent = text;
  return made;
}

const is = Number.isFinite;
const number = (n, digits = 0) => is(n)
  ? n.toLocaleString("en", {maximumFractionDigits: digits}) : "-";

function time(ms) {
  if (!is(ms))
    return "-";
  /* No line ends between number and unit. */
  return ms >= 10000 ? number(ms / 1000, 1) + "\u00a0s"
    : number(ms, ms < 10 ? 1 : 0) + "\u00a0ms";
}

function bytes(n) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (n >= 1000 && unit < units.length - 1) {
    n /= 1000;
    unit++;
  }
  return number(n, n < 10 && unit ? 1 : 0) + " " + units[unit];
}

const percent = (part, whole) => whole > 0
  ? number(100 * part / whole, 1) + "\u00a0%" : "-";

/* A share of prompt tokens. Where engines did not tell some of them, it is a
   guess: by the index alone. */
function hits(part, whole, guessed, when) {
  const unsure = whole > 0 && guessed > 0;
  return [(unsure ? "\u2248\u00a0" : "") + percent(part, whole),
    `of prompt tokens cached, ${when}` +
    (unsure ? `; a guess for ${percent(guessed, whole)} of them` : "")];
}

function promises(kept, late, when) {
  return [percent(kept, kept + late), kept + late
    ? `promises kept, ${when}: ${number(kept)} kept, ${number(late)} late`
    : `promises kept, ${when}: no request with a limit on TTFT`];
}

/* Numbers of now. */
function showOverview(o) {
  const minute = o.last_minute, each = minute.seconds || 1;
  const tokens = o.tokens, pools = o.pools, r = o.requests;
  const cached = tokens.local + tokens.fetched + tokens.disk + tokens.shared;
  const all = [
    [number(r.in_flight), "requests in work"],
    [number(minute.in_time / each, 2) + "\u00a0/s", "in time, last minute"],
    [`${number(minute.late / each, 2)}, ${number(minute.rejected / each, 2)}, ` +
      `${number(minute.failed / each, 2)}\u00a0/s`, "late, rejected, failed, last minute"],
    [time(minute.ttft_mean_ms) + ", " + time(minute.ttft_p99_ms), "TTFT mean, p99, last minute"],
    [time(minute.ttft_p50_ms) + ", " + time(minute.predicted_p50_ms), "TTFT p50 real, predicted, last minute"],
    promises(minute.promises_kept, minute.promises_late, "last minute"),
    promises(o.promises.kept, o.promises.late, "since the start"),
    hits(minute.reused_tokens, minute.prompt_tokens, minute.guessed_tokens, "last minute"),
    hits(cached, tokens.prompt, Math.max(o.guessed.length, o.guessed.cached), "since the start"),
    [`${number(r.completed)}, ${number(r.failed)}`, "completed, failed since the start"],
    [number(r.rejected), "rejected since the start" + reasons(o.rejections)],
    [bytes(o.transfers.fetched_bytes), "KV fetched from others"],
    [`${pools.prefill.ready} of ${pools.prefill.instances}`,
      `prefill ready; ${number(pools.prefill.waiting)} wait, ${number(pools.prefill.running)} run`],
    [`${pools.decode.ready} of ${pools.decode.instances}`,
      `decode ready; ${number(pools.decode.decodes)} decode`],
  ];
  $("numbers").replaceChildren(...all.map(([value, what]) =>
    element("div", {}, element("b", {textContent: value}),
      element("span", {textContent: what}))));
  const ready = o.models.filter((m) => m.ready).map((m) => m.name);
  const waits = o.models.filter((m) => !m.ready).map((m) => m.name);
  say([ready.length && "ready: " + ready.join(", "),
    waits.length && "not ready: " + waits.join(", "),
    !o.models.length && "no model is served"].filter(Boolean).join("; "),
    !ready.length);
}

function reasons(counts) {
  const named = Object.entries(counts).filter(([, n]) => n > 0)
    .map(([why, n]) => `${why} ${number(n)}`);
  return named.length ? ": " + named.join(", ") : "";
}

/* A part of a whole as a bar; without a whole, as a number. */
function bar(part, whole, text) {
  const filled = whole > 0 ? Math.min(1, part / whole) : 0;
  const inner = element("i");
  inner.style.width = 100 * filled + "%";
  return element("span", {className: "bar"},
    inner, element("span", {textContent: text}));
}

function row(cells, titles, chosen) {
  return element("tr", {className: chosen ? "chosen" : ""},
    ...cells.map((cell, i) => {
      const made = element("td", {}, cell);
      made.dataset.title = titles[i];
      return made;
    }));
}

function titleRow(titles) {
  return element("tr", {}, ...titles.map((t) =>
    element("th", {scope: "col", textContent: t})));
}

function showInstances(data) {
  const titles = ["Instance", "Model", "Role", "State", "Prefill queue",
    "Decodes", "KV", "Real / predicted"];
  const list = data.instances;
  const most = Math.max(4, ...list.map((i) => i.prefills || 0));
  const decodes = Math.max(4, ...list.map((i) => i.decodes || 0));
  $("instances").tHead.replaceChildren(titleRow(titles));
  $("instances").tBodies[0].replaceChildren(...list.map((i) => row([
    i.name, i.model || "-", i.role || "-",
    i.state + (i.drained && i.state !== "draining" ? ", drained" : ""),
    bar(i.prefills || 0, most,
      `${number(i.prefills || 0)}, ${number(i.prefills_waiting || 0)} wait`),
    bar(i.decodes || 0, decodes, number(i.decodes || 0)),
    bar(i.kv_used_tokens || 0, i.kv_capacity_tokens,
      percent(i.kv_used_tokens, i.kv_capacity_tokens)),
    number(i.prefill_ratio, 2),
  ], titles)));
  $("left-out").textContent = data.left_out
    ? `${number(data.left_out)} more are not shown; conductorctl instances has all` : "";
}

function candidate(c, chosen) {
  const tested = is(c.tested_ttft_ms) ? `: ${time(c.tested_ttft_ms)} behind all accepted work` : "";
  const why = [c.late && "too late" + tested, c.queue_full && "queue full",
    c.too_long && "too long", c.spared && "spared"].filter(Boolean);
  return [c.instance || "(gone)", time(c.ttft_ms ?? undefined), time(c.queue_ms ?? undefined),
    time(c.load_ms ?? undefined), time(c.prefill_ms ?? undefined),
    `${number(c.local_blocks)} of ${number(c.used_blocks)} here`,
    chosen ? "chosen" : why.join(", ") || "-"];
}

/* Why it was refused, and what was predicted for it. */
function refusal(d) {
  const best = (list, key) => list.map((c) => c[key]).filter(is)
    .reduce((a, b) => Math.min(a, b), Infinity);
  const least = (of, ms) => is(ms) && ms < Infinity ? `${of} ${time(ms)} predicted` : `no ${of} predicted`;
  switch (d.verdict) {
    case "reject_slo_ttft":
      return (is(d.predicted?.tested_ttft_ms)
        ? `${least("TTFT", d.predicted.tested_ttft_ms)} behind all accepted work`
        : least("TTFT", best(d.candidates, "ttft_ms"))) + `, limit ${time(d.slo_ttft_ms)}`;
    case "reject_slo_tbt":
      return `${least("TBT", d.predicted?.tbt_ms ?? best(d.decode_candidates, "tbt_ms"))}` +
        `, limit ${time(d.slo_tbt_ms)}`;
    case "reject_price":
      return `overload: price ${time(d.price_ms)}, limit ${time(d.price_limit_ms)}` +
        `; ${least("TTFT", d.predicted?.ttft_ms)}`;
    case "reject_share":
      return `tenant ${d.tenant} had ${number(d.standing, 2)} of its share`;
    default:
      return `${d.verdict.replaceAll("_", " ")}; ${least("TTFT", best(d.candidates, "ttft_ms"))}`;
  }
}

/* What became of a decision, in one line. */
function fate(d) {
  const refused = d.state === "rejected" || !d.prefill;
  const ttft = d.actual.ttft_ms;
  const limit = is(d.slo_ttft_ms) && is(ttft)
    ? `, limit ${time(d.slo_ttft_ms)} ${ttft <= d.slo_ttft_ms ? "kept" : "missed"}` : "";
  return [d.state === "rejected" ? d.reason : d.state + (d.reason ? ` (${d.reason})` : ""),
    refused ? refusal(d) : `TTFT ${time(d.predicted?.total_ttft_ms ?? undefined)} predicted, ` +
      (is(ttft) ? `${time(ttft)} real${limit}` : "real one not known"),
    number(d.actual.prompt_tokens ?? d.prompt_tokens) + " tokens",
    new Date(d.decided_ms).toLocaleTimeString(), d.request_id].join(" \u00b7 ");
}

function decision(d) {
  const titles = ["Instance", "TTFT", "Queue", "Load", "Prefill", "Blocks", "Verdict"];
  const table = element("table", {}, element("thead", {}, titleRow(titles)),
    element("tbody", {}, ...d.candidates.map((c) => {
      const chosen = c.instance !== null && c.instance === d.prefill && d.state !== "rejected";
      return row(candidate(c, chosen), titles, chosen);
    })));
  const to = d.state === "rejected" ? "\u2715 rejected"
    : d.prefill ? d.prefill + (d.decode && d.decode !== d.prefill ? " \u2192 " + d.decode : "")
      : d.verdict;
  const made = element("details", {open: open.has(d.request_id)},
    element("summary", {}, element("b", {textContent: to}), " ",
      element("span", {className: "weak", textContent: fate(d)})), table);
  if (d.candidates_left_out)
    made.append(element("p", {className: "note",
      textContent: `${number(d.candidates_left_out)} more candidates`}));
  made.addEventListener("toggle", () => {
    open.delete(d.request_id);
    if (made.open)
      open.set(d.request_id, d);
    if (open.size > OPEN_KEPT)
      open.delete(open.keys().next().value);
  });
  return made;
}

/* Decisions that the reader has opened: they stay when newer ones come. */
const open = new Map();

function showDecisions(data) {
  const now = new Set(data.decisions.map((d) => d.request_id));
  for (const d of data.decisions)
    if (open.has(d.request_id))
      open.set(d.request_id, d);
  const refused = new Set(data.refused.map((d) => d.request_id));
  const older = [...open.values()].filter((d) => !now.has(d.request_id) &&
    !refused.has(d.request_id)).reverse();
  $("refusals").replaceChildren(...data.refused.map(decision));
  if (!data.refused.length)
    $("refusals").append(element("p", {className: "note", textContent: "none yet"}));
  $("decisions").replaceChildren(...data.decisions.map(decision), ...older.map(decision));
  if (!data.decisions.length)
    $("decisions").append(element("p", {className: "note", textContent: "none yet"}));
}

/* The steps of an axis from 0 to at least n: round numbers, at most 5 of them. */
function ticks(n) {
  const unit = 10 ** Math.floor(Math.log10(n));
  const step = [0.2, 0.5, 1, 2].map((k) => k * unit).find((k) => n / k <= 5.001);
  const count = Math.max(1, Math.ceil(n / step - 0.001));
  return Array.from({length: count + 1}, (_, i) => i * step);
}

function pathOf(values, x, y) {
  let path = "", pen = false;
  values.forEach((v, i) => {
    if (is(v))
      path += `${pen ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`;
    pen = is(v);
  });
  return path;
}

/* Lines differ by their dashes and marks, too, for readers who see no colours. */
const MARKS = [
  "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", "M-3.5 -3.5h7v7h-7z",
  "M0 -4.5L4.5 3.5h-9z", "M-4 -4L4 4M-4 4L4 -4"];

function mark(line, at, x, y) {
  return drawn("path", {class: `mark line-${at} c-${line.color}`, d: MARKS[at],
    transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`});
}

function sample(line, at) {
  const svg = drawn("svg", {viewBox: "0 0 44 12", class: "sample"});
  svg.append(drawn("path", {class: `line line-${at} c-${line.color}`, d: "M1 6H43"}),
    mark(line, at, 22, 6));
  return element("span", {}, svg, line.name);
}

function ago(seconds) {
  return !seconds ? "now"
    : seconds >= 2 * 3600 ? `-${seconds / 3600} h` : `-${seconds / 60} min`;
}

function chart(id, h, lines, unit, least) {
  const svg = $(id), width = svg.clientWidth || 600, height = svg.clientHeight || 150;
  const bottom = 18, right = 8, above = 8, n = lines[0].values.length;
  const steps = ticks(Math.max(least, ...lines.flatMap((l) => l.values).filter(is)));
  const top = steps.at(-1), labels = steps.map((v) => unit(v, steps[1]));
  const left = 10 + 6.8 * Math.max(...labels.map((l) => l.length));
  const x = (i) => left + (width - left - right) * i / (n - 1);
  const y = (v) => height - bottom - (height - bottom - above) * Math.min(1, v / top);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren();
  steps.forEach((v, i) => {
    svg.append(drawn("line", {class: "grid", x1: left, x2: width - right, y1: y(v), y2: y(v)}));
    svg.append(drawn("text", {x: left - 6, y: y(v) + 4, "text-anchor": "end"}, labels[i]));
  });
  const seconds = n * h.step_s, parts = seconds === 300 ? 5 : 3;
  for (let part = 0; part <= parts; part++) {
    if (part === 1 && width < 110 * parts)
      continue;
    svg.append(drawn("text", {x: x((n - 1) * part / parts), y: height - 3,
      "text-anchor": part === 0 ? "start" : part < parts ? "middle" : "end"},
      ago(Math.round(seconds * (parts - part) / parts))));
  }
  lines.forEach((line, at) => {
    svg.append(drawn("path", {class: `line line-${at} c-${line.color}`, d: pathOf(line.values, x, y)}));
    /* Marks at other places than those of other lines, and where a point stands
       alone, so that no line would show it. */
    const every = Math.max(1, Math.floor(n / 6));
    const last = n - 1 - Math.floor(at * every / 4);
    line.values.forEach((v, i) => {
      const alone = !is(line.values[i - 1]) && !is(line.values[i + 1]);
      if (is(v) && (alone || (last - i) % every === 0))
        svg.append(mark(line, at, x(i), y(v)));
    });
  });
  $(id + "-legend").replaceChildren(...lines.map(sample));
}

const histories = {};
const span = () => document.querySelector("#spans :checked").value;

function showHistory() {
  const h = histories[span()];
  if (!h)
    return;
  /* The last point is under way, and what was before the first request of the
     span may be before the start. */
  const ended = h.in_time.map((n, i) => n + h.late[i] + h.rejected[i] + h.failed[i]);
  const first = ended.findIndex((n) => n > 0), last = ended.length - 1;
  const perSecond = (counts) => counts.map((c, i) =>
    first < 0 || i < first || (i === last && h.last_s < h.step_s / 4) ? null
      : c / (i < last ? h.step_s : h.last_s));
  const share = (part, whole) => part.map((n, i) => whole[i] ? 100 * n / whole[i] : null);
  chart("ttft", h, [
    {name: "mean", color: "blue", values: h.ttft_mean_ms},
    {name: "p99", color: "orange", values: h.ttft_p99_ms},
    {name: "p50", color: "green", values: h.ttft_p50_ms},
    {name: "p50 as predicted", color: "grey", values: h.predicted_p50_ms},
  ], (ms, step) => step >= 1000 ? number(ms / 1000, 1) + " s" : number(ms, 3) + " ms", 0.1);
  chart("goodput", h, [
    {name: "in time (goodput)", color: "green", values: perSecond(h.in_time)},
    {name: "late", color: "orange", values: perSecond(h.late)},
    {name: "rejected", color: "grey", values: perSecond(h.rejected)},
    {name: "failed", color: "red", values: perSecond(h.failed)},
  ], (v) => number(v, 2), 0.1);
  const known = h.promises_kept.map((n, i) => n + h.promises_late[i]);
  chart("shares", h, [
    {name: "cached", color: "blue", values: share(h.reused_tokens, h.prompt_tokens)},
    {name: "promises kept", color: "orange", values: share(h.promises_kept, known)},
    {name: "cached part is a guess", color: "grey", values: share(h.guessed_tokens, h.prompt_tokens)},
  ], (v) => number(v) + " %", 100);
}

const show = {overview: showOverview, instances: showInstances,
  decisions: showDecisions};
for (const name of ["history/5m", "history", "history/24h"]) {
  show[name] = (h) => {
    histories[name] = h;
    if (name === span())
      showHistory();
  };
}

function say(text, bad) {
  $("state").textContent = text;
  $("state").className = bad ? "bad" : "";
}

/* Events end with an empty line. Returns what is left of the text. */
function take(text) {
  const events = text.split("\n\n");
  const rest = events.pop();
  for (const event of events) {
    const lines = event.trimStart().split("\n");
    const name = lines[0].replace(/^event: /, "");
    if (Object.hasOwn(show, name) && lines[1]?.startsWith("data: "))
      show[name](JSON.parse(lines[1].slice(6)));
  }
  return rest;
}

function askForKey(why) {
  sessionStorage.removeItem(STORED);
  $("refused").textContent = why;
  $("ask").hidden = false;
  $("all").hidden = true;
  say("needs a key", true);
  $("key").focus();
}

/* Streams events until they end. Returns whether to come back. */
async function watch() {
  const key = sessionStorage.getItem(STORED);
  const answer = await fetch("/admin/events", {cache: "no-store",
    headers: key ? {Authorization: "Bearer " + key} : {}});
  if (answer.status === 401) {
    askForKey(key ? "That is not the key." : "");
    return false;
  }
  if (!answer.ok) {
    const error = await answer.json().catch(() => null);
    throw new Error(error?.error?.message ?? `status ${answer.status}`);
  }
  $("refused").textContent = "";
  $("ask").hidden = true;
  $("all").hidden = false;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = "";;) {
    const {done, value} = await reader.read();
    if (done)
      throw new Error("the conductor ended the stream");
    text = take(text + value);
  }
}

async function listen() {
  for (;;) {
    try {
      if (!await watch())
        return;
    } catch (error) {
      say(`no connection (${error.message}); trying again`, true);
    }
    await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
  }
}

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(STORED, $("key").value);
  $("key").value = "";
  listen();
});
const chosen = document.querySelector(`#spans [value="${sessionStorage.getItem(SPAN)}"]`);
if (chosen)
  chosen.checked = true;
$("spans").addEventListener("change", () => {
  sessionStorage.setItem(SPAN, span());
  showHistory();
});
addEventListener("resize", showHistory);
listen();
})();

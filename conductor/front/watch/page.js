"use strict";
/* Shows the events of /admin/events. All that comes from outside is set as
   text; nothing here makes markup of text. */
(() => {
const $ = (id) => document.getElementById(id);
const STORED = "conductor-admin-key";
const WAIT_MS = 2000;
const HISTORY_MINUTES = 60;

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
  return ms >= 10000 ? number(ms / 1000, 1) + " s"
    : number(ms, ms < 10 ? 1 : 0) + " ms";
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
  ? number(100 * part / whole, 1) + " %" : "-";

/* Numbers of now. */
function showOverview(o) {
  const minute = o.last_minute, each = minute.seconds || 1;
  const tokens = o.tokens, pools = o.pools, r = o.requests;
  const cached = tokens.local + tokens.fetched + tokens.disk + tokens.shared;
  const all = [
    [number(r.in_flight), "requests in work"],
    [number(minute.in_time / each, 2) + " /s", "in time, last minute"],
    [time(minute.ttft_p50_ms) + ", " + time(minute.ttft_p90_ms), "TTFT p50, p90, last minute"],
    [time(minute.predicted_p50_ms), "TTFT p50 as predicted"],
    [percent(minute.reused_tokens, minute.prompt_tokens), "of prompts cached, last minute" +
      (minute.guessed_tokens ? ` (guessed for ${percent(minute.guessed_tokens, minute.prompt_tokens)})` : "")],
    [percent(cached, tokens.prompt), "cached since the start"],
    [`${number(r.completed)} / ${number(r.failed)}`, "completed / failed"],
    [number(r.rejected), "rejected" + reasons(o.rejections)],
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
  return element("span", {className: filled > 0.95 ? "bar full" : "bar"},
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
  const why = [c.late && "too late", c.queue_full && "queue full",
    c.too_long && "too long", c.spared && "spared"].filter(Boolean);
  return [c.instance || "(gone)", time(c.ttft_ms ?? undefined), time(c.queue_ms ?? undefined),
    time(c.load_ms ?? undefined), time(c.prefill_ms ?? undefined),
    `${number(c.local_blocks)} of ${number(c.used_blocks)} here`,
    chosen ? "chosen" : why.join(", ") || "-"];
}

function showDecisions(data) {
  const titles = ["Instance", "TTFT", "Queue", "Load", "Prefill", "Blocks", "Verdict"];
  const open = new Set([...$("decisions").querySelectorAll("details[open]")]
    .map((d) => d.dataset.id));
  $("decisions").replaceChildren(...data.decisions.map((d) => {
    const table = element("table", {}, element("thead", {}, titleRow(titles)),
      element("tbody", {}, ...d.candidates.map((c) => {
        const chosen = c.instance !== null && c.instance === d.prefill;
        return row(candidate(c, chosen), titles, chosen);
      })));
    const to = d.prefill
      ? d.prefill + (d.decode && d.decode !== d.prefill ? " \u2192 " + d.decode : "") : d.verdict;
    const made = element("details", {open: open.has(d.request_id)},
      element("summary", {}, element("b", {textContent: to}), " ",
        element("span", {className: "weak", textContent:
          `${new Date(d.decided_ms).toLocaleTimeString()} \u00b7 ${d.state}` +
          `${d.reason ? " (" + d.reason + ")" : ""} \u00b7 ${number(d.actual.prompt_tokens ?? d.prompt_tokens)} tokens \u00b7 TTFT ` +
          `${time(d.predicted?.total_ttft_ms ?? undefined)} predicted, ` +
          `${time(d.actual.ttft_ms ?? undefined)} real \u00b7 ${d.request_id}`})),
      table);
    if (d.candidates_left_out)
      made.append(element("p", {className: "note",
        textContent: `${number(d.candidates_left_out)} more candidates`}));
    made.dataset.id = d.request_id;
    return made;
  }));
  if (!data.decisions.length)
    $("decisions").append(element("p", {className: "note", textContent: "none yet"}));
}

/* A round number at or above n. */
function ceiling(n) {
  const unit = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 5, 10].map((k) => k * unit).find((k) => k >= n * 0.999);
}

function pathOf(values, x, y) {
  let path = "", pen = false;
  values.forEach((v, i) => {
    if (is(v))
      path += `${pen ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`;
    pen = is(v);
    /* One alone is a dot. */
    if (pen && !is(values[i - 1]) && !is(values[i + 1]))
      path += "h2";
  });
  return path;
}

function chart(id, lines, unit) {
  const svg = $(id), width = svg.clientWidth || 600, height = svg.clientHeight || 150;
  const left = 52, bottom = 18, right = 6, above = 8;
  const n = lines[0].values.length;
  const top = ceiling(Math.max(1e-3, ...lines.flatMap((l) => l.values).filter(is)));
  const x = (i) => left + (width - left - right) * i / (n - 1);
  const y = (v) => height - bottom - (height - bottom - above) * Math.min(1, v / top);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren();
  for (const part of [0, 0.5, 1]) {
    svg.append(drawn("line", {class: "grid", x1: left, x2: width - right, y1: y(top * part), y2: y(top * part)}));
    svg.append(drawn("text", {x: left - 5, y: y(top * part) + 4, "text-anchor": "end"}, unit(top * part)));
  }
  for (const minutes of [60, 40, 20, 0])
    svg.append(drawn("text", {x: x((n - 1) * (1 - minutes / HISTORY_MINUTES)), y: height - 3,
      "text-anchor": minutes ? minutes === 60 ? "start" : "middle" : "end"},
      minutes ? `-${minutes} min` : "now"));
  for (const line of [...lines].reverse())
    svg.append(drawn("path", {class: "c-" + line.color, d: pathOf(line.values, x, y)}));
  $(id + "-legend").replaceChildren(...lines.map((l) =>
    element("span", {className: "c-" + l.color, textContent: l.name})));
}

let history = null;

function showHistory(h) {
  history = h;
  const perSecond = (counts) => counts.map((c) => c / h.step_s);
  chart("ttft", [
    {name: "p90", color: "orange", values: h.ttft_p90_ms},
    {name: "p50", color: "blue", values: h.ttft_p50_ms},
    {name: "p50 as predicted", color: "grey", values: h.predicted_p50_ms},
  ], time);
  chart("goodput", [
    {name: "in time (goodput)", color: "green", values: perSecond(h.in_time)},
    {name: "late", color: "orange", values: perSecond(h.late)},
    {name: "rejected", color: "grey", values: perSecond(h.rejected)},
    {name: "failed", color: "red", values: perSecond(h.failed)},
  ], (v) => number(v, 2));
}

const show = {overview: showOverview, instances: showInstances,
  decisions: showDecisions, history: showHistory};

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
addEventListener("resize", () => history && showHistory(history));
listen();
})();

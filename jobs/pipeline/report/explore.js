"use strict";
// The numbers of the page stand in it as compressed blocks, unpacked when they are first needed.
const at = (id) => document.getElementById(id);
const header = JSON.parse(at("header").textContent);
const packed = at("data").textContent.trim();
const MINUS = "\u2212", DASH = "\u2013", MOST_PLACES = 8, ROWS = 60, HITS = 12;

// --- numbers ------------------------------------------------------------------------------------

const blocks = new Map();

function block([start, length]) {
  if (!blocks.has(start)) {
    const raw = Uint8Array.from(atob(packed.slice(start, start + length)), (c) => c.charCodeAt(0));
    const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("gzip"));
    blocks.set(start, new Response(stream).arrayBuffer().then((buffer) => new Uint8Array(buffer)));
  }
  return blocks.get(start);
}

// Whole numbers: byte k of all of them stands together, the sign is the lowest bit.
function unpack(bytes, arrays) {
  const found = {};
  let from = 0;
  for (const [name, width, size] of arrays) {
    const values = new Float64Array(size);
    for (let k = width - 1; k >= 0; k--) {
      const plane = from + k * size;
      for (let i = 0; i < size; i++) values[i] = values[i] * 256 + bytes[plane + i];
    }
    for (let i = 0; i < size; i++) values[i] = values[i] % 2 ? -(values[i] + 1) / 2 : values[i] / 2;
    found[name] = values;
    from += width * size;
  }
  return found;
}

async function arraysOf(described) {
  return unpack(await block(described.place), described.arrays);
}

const places = new Map();

function placesOf(level) {
  if (!places.has(level)) {
    places.set(level, block(header.levels[level].places).then((bytes) => {
      const [codes, names] = new TextDecoder().decode(bytes).split("\0").map((t) => t.split("\n"));
      const number = new Map(codes.map((code, unit) => [code, unit]));
      return { codes, names: names || [], number };
    }));
  }
  return places.get(level);
}

const tables = new Map();

// Answers of a table in all places of a geolevel; null if they were left out of the page.
function answersOf(level, table) {
  const key = `${level}/${table}`;
  if (!tables.has(key)) {
    const described = header.blocks[key];
    const size = header.levels[level].size;
    tables.set(key, !described ? Promise.resolve(null) : arraysOf(described).then((arrays) => ({
      own: "lower" in arrays,
      off: "off" in arrays,
      estimated: "estimate" in arrays,
      get(answer, unit) {
        const i = answer * size + unit;
        const count = arrays.count[i];
        const found = { count };
        if (arrays.estimate) {
          found.estimate = count + arrays.estimate[i] / 10;
          found.error = arrays.error[i] / 100;
          found.low = found.estimate - header.factor * found.error;
          found.high = found.estimate + header.factor * found.error;
        }
        if (arrays.lower) [found.least, found.most] = [count - arrays.lower[i], count + arrays.upper[i]];
        if (arrays.off) found.off = arrays.off[i];
        return found;
      },
    })));
  }
  return tables.get(key);
}

const tr = (message, values = {}) => (header.messages[message] || message).replace(/\{(\w+)\}/g, (all, name) => values[name] ?? all);
const local = (text) => text.replace(/[,.]/g, (mark) => (mark === "," ? tr("1,234.5")[1] : tr("1,234.5").at(-2)));
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const signed = (text) => text.replace(/^-(?=[0.]*$)/, "").replace("-", MINUS);  // 0.0, not -0.0
const integer = (value) => local(signed(whole.format(value)));
const decimal = (value) => local(signed((Math.abs(value) >= 1e5 ? whole : tenth).format(value)));
const range = (low, high, show) => tr("{low} to {high}", { low: show(low), high: show(high) });
const interval = (row) => row.error ? range(row.low, row.high, decimal) : tr("exact");
const words = (name) => name.replaceAll(" * ", " \u00d7 ").replaceAll("_", " ");

// --- state --------------------------------------------------------------------------------------

const state = { level: 0, table: 0, answer: 0, picked: [], sort: "code", down: false, rows: ROWS, within: "", measure: "count" };

function read() {
  const [level, table, answer, picked] = decodeURIComponent(location.hash.slice(1)).split("/");
  const known = (list, name) => Math.max(0, list.findIndex((one) => one.name === name));
  state.level = known(header.levels, level);
  state.table = known(header.tables, (table || "").replaceAll("+", " "));
  state.answer = Math.min(Number(answer) || 0, header.tables[state.table].labels.length - 1);
  return (picked || "").split(",").filter(Boolean);
}

function write() {
  const picked = state.picked.map(([level, , code]) => `${level}:${code}`).join(",");
  const parts = [header.levels[state.level].name, header.tables[state.table].name.replaceAll(" ", "+"), state.answer, picked];
  history.replaceState(null, "", "#" + parts.map(encodeURIComponent).join("/"));
}

function element(tag, values = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(values)) {
    if (name === "text") made.textContent = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function options(select, list, chosen) {
  select.replaceChildren(...list.map(([value, text]) => element("option", { value, text })));
  select.value = chosen;
}

// The whole has a code that says nothing.
async function nameOf(level, unit) {
  const { codes, names } = await placesOf(level);
  const plain = codes[unit] === "0" ? words(header.levels[level].name) : codes[unit];
  return [names[unit] || plain, codes[unit]];
}

// --- find ---------------------------------------------------------------------------------------

let hits = [], active = -1;

async function find(text) {
  const asked = text.toLowerCase().trim();
  const wanted = asked.split(/\s+/).filter(Boolean);
  const best = [];
  if (!wanted.length) return best;
  for (let level = 0; level < header.levels.length; level++) {
    const { codes, names } = await placesOf(level);
    for (let unit = 0; unit < codes.length; unit++) {
      const name = (names[unit] || "").toLowerCase(), code = codes[unit].toLowerCase();
      if (!wanted.every((word) => name.includes(word) || code.startsWith(word))) continue;
      const rank = name === asked || code === asked ? 0 : name.startsWith(asked) ? 1 : 2;
      best.push([rank, level, unit]);
    }
    if (best.length > 5000) break;
  }
  return best.sort((a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2]).slice(0, HITS).map((one) => one.slice(1));
}

async function suggest() {
  const text = at("search").value;
  const found = await find(text);
  if (text !== at("search").value) return;
  hits = found;
  active = hits.length ? 0 : -1;
  const rows = await Promise.all(hits.map(async ([level, unit], index) => {
    const [name, code] = await nameOf(level, unit);
    return element("li", { role: "option", id: `hit-${index}`, onpointerdown: (event) => { event.preventDefault(); take(index); } },
      element("span", { text: name === code ? code : `${name} (${code})` }),
      element("small", { text: words(header.levels[level].name) }));
  }));
  if (text.trim() && !rows.length) rows.push(element("li", { text: tr("No place has this name or code") }));
  at("hits").replaceChildren(...rows);
  at("hits").hidden = !rows.length;
  at("search").setAttribute("aria-expanded", String(rows.length > 0));
  mark();
}

function mark() {
  [...at("hits").children].forEach((row, index) => row.setAttribute("aria-selected", String(index === active)));
  if (active >= 0) at("search").setAttribute("aria-activedescendant", `hit-${active}`);
  else at("search").removeAttribute("aria-activedescendant");
  at("hits").children[active]?.scrollIntoView({ block: "nearest" });
}

function close() {
  hits = [];
  active = -1;
  at("hits").hidden = true;
  at("search").setAttribute("aria-expanded", "false");
  at("search").removeAttribute("aria-activedescendant");
}

function take(index) {
  const [level, unit] = hits[index];
  at("search").value = "";
  close();
  pick(level, unit);
}

// --- compare ------------------------------------------------------------------------------------

async function pick(level, unit) {
  const [, code] = await nameOf(level, unit);
  const there = state.picked.some(([l, u]) => l === level && u === unit);
  if (!there) state.picked = [...state.picked, [level, unit, code]].slice(-MOST_PLACES);
  await show();
}

async function drop(level, unit) {
  state.picked = state.picked.filter(([l, u]) => l !== level || u !== unit);
  await show();
}

// The interval and the count, in standard errors from the estimate.
function bar(row) {
  const z = Math.max(-4, Math.min(4, (row.count - row.estimate) / row.error));
  const half = 12.5 * header.factor;
  const holder = document.createElement("template");
  holder.innerHTML = '<svg class="mark" viewBox="-50 -8 100 16" aria-hidden="true"><line x1="-50" x2="50" y1="0" y2="0" class="axis"/>'
    + `<rect x="${-half}" y="-5" width="${2 * half}" height="10" class="band"/><line x1="0" x2="0" y1="-5" y2="5" class="middle"/>`
    + `<path transform="translate(${12.5 * z} 0)" d="M0-6 6 0 0 6-6 0Z" class="count"/></svg>`;
  return holder.content.firstChild;
}

async function card(level, unit) {
  const [name, code] = await nameOf(level, unit);
  const found = await answersOf(level, state.table);
  const table = header.tables[state.table];
  const away = element("button", { type: "button", class: "away", "aria-label": tr("Remove {name}", { name }), text: "\u00d7", onclick: () => drop(level, unit) });
  const under = name === code || code === "0" ? words(header.levels[level].name) : `${code}, ${words(header.levels[level].name)}`;
  const made = element("article", { class: "card" },
    element("h3", {}, element("span", { text: name }, element("small", { text: under })), away));
  if (!found) {
    made.append(element("p", { class: "absent", text: tr("{table} of every {geolevel} was left out of this page for its size.", { table: words(table.name), geolevel: words(header.levels[level].name) }) }));
    return made;
  }
  const heads = ["", tr("Protected"), ...(found.off ? ["Error"] : []), ...(found.estimated ? [tr("Estimate"), tr("{confidence} % interval", { confidence: 100 * header.confidence })] : [])];
  const body = table.labels.map((label, answer) => {
    const row = found.get(answer, unit);
    const count = element("td", { class: "number", text: integer(row.count) });
    if ("least" in row) count.append(element("br"), element("small", { text: range(row.least, row.most, integer) }));
    const cells = [element("th", { scope: "row", text: words(label) }), count];
    if ("off" in row) cells.push(element("td", { class: "number", text: (row.off > 0 ? "+" : "") + integer(row.off) }));
    if ("estimate" in row) {
      const last = element("td", { class: "number", text: interval(row) });
      if (row.error) last.append(bar(row));
      cells.push(element("td", { class: "number", text: decimal(row.estimate) }), last);
    }
    return element("tr", answer === state.answer ? { class: "chosen" } : {}, ...cells);
  });
  const head = element("tr", {}, ...heads.map((text, i) => element("th", { scope: "col", class: i ? "number" : "", text })));
  const label = tr("{table} of {place}", { table: words(table.name), place: name });
  made.append(element("div", { class: "answers", tabindex: "0", role: "region", "aria-label": label },
    element("table", {}, element("thead", {}, head), element("tbody", {}, ...body))));
  return made;
}

// --- places -------------------------------------------------------------------------------------

const COLUMNS = {
  code: [tr("Place"), (row) => row.unit],
  count: [tr("Protected"), (row) => row.count],
  off: ["Error", (row) => row.off],
  estimate: [tr("Estimate"), (row) => row.estimate],
  error: ["\u00b1", (row) => row.error],
  low: [tr("{confidence} % interval", { confidence: 100 * header.confidence }), (row) => row.low],
};

async function list() {
  const level = state.level;
  const { codes, names } = await placesOf(level);
  const found = await answersOf(level, state.table);
  const table = header.tables[state.table];
  const label = table.labels.length > 1 ? `${words(table.name)}: ${words(table.labels[state.answer])}` : words(table.name);
  const shown = [];
  for (let unit = 0; unit < codes.length; unit++) {
    if (codes[unit].startsWith(state.within)) shown.push({ unit, ...(found ? found.get(state.answer, unit) : {}) });
  }
  const columns = ["code", ...(found ? ["count"] : []), ...(found?.off ? ["off"] : []), ...(found?.estimated ? ["estimate", "error", ...(found.off ? [] : ["low"])] : [])];
  if (!columns.includes(state.sort)) [state.sort, state.down] = ["code", false];
  const value = COLUMNS[state.sort][1];
  shown.sort((a, b) => (state.down ? value(b) - value(a) : value(a) - value(b)) || a.unit - b.unit);
  const picked = new Set(state.picked.filter(([l]) => l === level).map(([, unit]) => unit));
  at("list-caption").textContent = tr("{table}, by {geolevel} ({places})", { table: label, geolevel: words(header.levels[level].name), places: integer(shown.length) }) + (found ? "" : tr(": left out of this page for its size"));
  const head = at("list").tHead.rows[0];
  const kind = (key, i) => (i ? "number" : "") + (key === "low" ? " wide-only" : "");
  head.replaceChildren(...columns.map((key, i) => {
    const th = element("th", { scope: "col", class: kind(key, i) }, element("button", { type: "button", text: COLUMNS[key][0], onclick: () => {
      [state.sort, state.down] = [key, state.sort === key ? !state.down : key !== "code"];
      state.rows = ROWS;
      list();
    } }));
    if (state.sort === key) th.setAttribute("aria-sort", state.down ? "descending" : "ascending");
    return th;
  }));
  at("list").tBodies[0].replaceChildren(...shown.slice(0, state.rows).map((row) => {
    const name = names[row.unit];
    const first = element("th", { scope: "row", text: name || (codes[row.unit] === "0" ? words(header.levels[level].name) : codes[row.unit]) });
    if (name) first.append(element("small", { text: codes[row.unit] }));
    const texts = { count: integer, off: (v) => (v > 0 ? "+" : "") + integer(v), estimate: decimal, error: (v) => decimal(header.factor * v), low: () => interval(row) };
    const cells = columns.slice(1).map((key) => element("td", { class: kind(key, 1), text: texts[key](row[key]) }));
    const choose = () => pick(level, row.unit);
    return element("tr", { tabindex: "0", class: picked.has(row.unit) ? "picked" : "", onclick: choose, onkeydown: (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); }
    } }, first, ...cells);
  }));
  at("more").hidden = shown.length <= state.rows;
  at("more").textContent = tr("Show {places} more", { places: integer(Math.min(ROWS, shown.length - state.rows)) });
}

// The parents of the chosen geolevel, to narrow the list.
async function parents() {
  const { above } = header.levels[state.level];
  const select = at("within");
  select.parentElement.hidden = !above; // none, or the root
  if (!above) { state.within = ""; return; }
  const { codes, names } = await placesOf(above);
  if (!codes.some((code) => state.within === code)) state.within = "";
  options(select, [["", tr("every {geolevel}", { geolevel: words(header.levels[above].name) })], ...codes.map((code, i) => [code, names[i] || code])], state.within);
}

// Whether geocodes of a geolevel begin with those of another.
function isIn(level, other) {
  for (let one = level; one !== null; one = header.levels[one].above) if (one === other) return true;
  return false;
}

// --- map ----------------------------------------------------------------------------------------

const MEASURES = {
  count: [tr("protected count"), (row) => row.count, integer],
  share: [tr("share of the table"), (row) => row.share, (v) => `${decimal(100 * v)} %`],
  estimate: [tr("estimate"), (row) => row.estimate, decimal],
  error: [tr("half width of the interval"), (row) => header.factor * row.error, decimal],
  off: ["error, which is confidential", (row) => row.off, (v) => (v > 0 ? "+" : "") + integer(v)],
};
const map = { shapes: null, colors: [], rows: [], scale: 1, x: 0, y: 0, fit: 1, over: -1 };
const canvas = at("map");
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

async function shapesOf() {
  const a = await arraysOf(header.map);
  const arcs = [];
  let step = 0, x0 = 0, y0 = 0;
  for (let i = 0; i < a.lengths.length; i++) {
    x0 += a.startX[i];
    y0 += a.startY[i];
    const points = new Float64Array(2 * a.lengths[i]);
    let x = x0, y = y0;
    for (let k = 0; k < a.lengths[i]; k++) {
      if (k) { x += a.stepX[step]; y += a.stepY[step]; step++; }
      points[2 * k] = x;
      points[2 * k + 1] = y;
    }
    arcs.push(points);
  }
  const shapes = [];
  let ring = 0, arc = 0;
  for (let f = 0; f < a.rings.length; f++) {
    const path = new Path2D();
    const box = [Infinity, Infinity, -Infinity, -Infinity];
    for (let r = 0; r < a.rings[f]; r++, ring++) {
      let begun = false;
      for (let k = 0; k < a.parts[ring]; k++, arc++) {
        const number = a.arcs[arc], points = arcs[number < 0 ? -number - 1 : number], n = points.length / 2;
        for (let i = begun ? 1 : 0; i < n; i++) {
          const j = number < 0 ? n - 1 - i : i, x = points[2 * j], y = points[2 * j + 1];
          if (begun) path.lineTo(x, y); else path.moveTo(x, y);
          begun = true;
          box[0] = Math.min(box[0], x); box[1] = Math.min(box[1], y);
          box[2] = Math.max(box[2], x); box[3] = Math.max(box[3], y);
        }
      }
      path.closePath();
    }
    shapes.push({ path, box, level: a.level[f], unit: a.unit[f] });
  }
  return shapes;
}

// Thresholds of up to eight colors with about as many places each.
function thresholds(values, most) {
  const sorted = [...values].sort((a, b) => a - b);
  const cuts = Array.from({ length: most - 1 }, (_, i) => sorted[Math.floor(((i + 1) * sorted.length) / most)]);
  return [...new Set(cuts)].filter((cut) => cut > sorted[0]);
}

async function color() {
  if (!canvas) return;
  map.shapes ||= await shapesOf();
  const levels = [...new Set(map.shapes.map((shape) => shape.level))].sort((a, b) => a - b);
  const finer = levels.filter((one) => isIn(one, state.level));
  const drawn = levels.includes(state.level) ? state.level : finer[finer.length - 1] ?? levels[levels.length - 1];
  const level = isIn(drawn, state.level) ? state.level : drawn; // a coarser one colors the places within alike
  const found = await answersOf(level, state.table);
  const { number } = await placesOf(level);
  const own = await placesOf(drawn);
  const n = header.tables[state.table].labels.length;
  const measures = !found ? [] : ["count", ...(n > 1 ? ["share"] : []), ...(found.estimated ? ["estimate", "error"] : []), ...(found.off ? ["off"] : [])];
  if (!measures.includes(state.measure)) state.measure = measures[0] || "count";
  options(at("measure"), measures.map((key) => [key, MEASURES[key][0]]), state.measure);
  const digits = header.levels[level].digits;
  const rows = new Map();
  map.drawn = drawn;
  map.rows = map.shapes.map((shape) => {
    if (shape.level !== drawn || !found) return null;
    const code = own.codes[shape.unit];
    const unit = level === drawn ? shape.unit : digits ? number.get(code.slice(0, digits)) : 0;
    if (unit === undefined) return null;
    if (!rows.has(unit)) {
      const row = found.get(state.answer, unit);
      if (state.measure === "share") {
        let sum = 0;
        for (let i = 0; i < n; i++) sum += found.get(i, unit).count;
        row.share = sum ? row.count / sum : 0;
      }
      rows.set(unit, { level, unit, value: MEASURES[state.measure][1](row), row });
    }
    return rows.get(unit);
  });
  const values = [...rows.values()].map((one) => one.value);
  const show = MEASURES[state.measure][2];
  const paint = state.measure === "off" ? diverging(values) : sequential(values);
  map.colors = map.rows.map((one) => one && paint.color(one.value));
  at("steps").replaceChildren(...paint.steps.map(([fill, low, high]) => {
    const swatch = element("span", { class: "swatch" });
    swatch.style.background = fill;
    return element("li", {}, swatch, low === high ? show(low) : `${show(low)} ${DASH} ${show(high)}`);
  }));
  draw();
}

function sequential(values) {
  const cuts = thresholds(values, 8);
  const fill = (k) => css(`--step-${Math.round(cuts.length ? (7 * k) / cuts.length : 3)}`);
  const place = (value) => cuts.filter((cut) => value >= cut).length;
  return steps(values, cuts.length + 1, place, fill);
}

function diverging(values) {
  const cuts = thresholds(values.map(Math.abs).filter(Boolean), 3);
  const sides = cuts.length + 1;
  const place = (value) => sides + Math.sign(value) * (value ? 1 + cuts.filter((cut) => Math.abs(value) >= cut).length : 0);
  const fill = (k) => {
    if (k === sides) return css("--wash");
    const name = k > sides ? "--above-heat" : "--below-heat";
    return mixed(css("--paper"), css(name), Math.abs(k - sides) / sides);
  };
  return steps(values, 2 * sides + 1, place, fill);
}

function steps(values, n, place, fill) {
  const found = Array.from({ length: n }, (_, k) => [fill(k), Infinity, -Infinity]);
  for (const value of values) {
    const step = found[place(value)];
    step[1] = Math.min(step[1], value);
    step[2] = Math.max(step[2], value);
  }
  return { color: (value) => found[place(value)][0], steps: found.filter((step) => step[1] <= step[2]) };
}

function mixed(one, other, share) {
  const part = (color, i) => parseInt(color.slice(1 + 2 * i, 3 + 2 * i), 16);
  const rgb = [0, 1, 2].map((i) => Math.round((1 - share) * part(one, i) + share * part(other, i)));
  return `rgb(${rgb.join(" ")})`;
}

function sized() {
  const ratio = window.devicePixelRatio || 1;
  const { width, height } = canvas.getBoundingClientRect();
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  map.ratio = ratio;
  map.fit = 0.96 * Math.min(canvas.width / header.map.width, canvas.height / header.map.height);
}

function placed() {
  const k = map.fit * map.scale;
  return [k, canvas.width / 2 - k * (header.map.width / 2 + map.x), canvas.height / 2 - k * (header.map.height / 2 + map.y)];
}

function draw() {
  sized();
  const pen = canvas.getContext("2d");
  const [k, dx, dy] = placed();
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.setTransform(k, 0, 0, k, dx, dy);
  const n = map.shapes.length;
  pen.lineJoin = "round";
  pen.lineWidth = (n > 2000 ? 0.3 : n > 400 ? 0.5 : 0.8) * map.ratio * Math.min(3, Math.sqrt(map.scale)) / k;
  pen.strokeStyle = css("--paper");
  map.shapes.forEach((shape, i) => {
    if (shape.level !== map.drawn) return;
    pen.fillStyle = map.colors[i] || css("--wash");
    pen.fill(shape.path, "evenodd");
    pen.stroke(shape.path);
  });
  const picked = new Set(state.picked.map(([l, u]) => `${l}/${u}`));
  pen.strokeStyle = css("--ink");
  pen.lineWidth = (2 * map.ratio) / k;
  map.shapes.forEach((shape, i) => {
    const row = map.rows[i];
    if (shape.level === map.drawn && (i === map.over || (row && picked.has(`${row.level}/${row.unit}`)))) pen.stroke(shape.path);
  });
}

function under(event) {
  const box = canvas.getBoundingClientRect();
  const [k, dx, dy] = placed();
  const x = ((event.clientX - box.left) * map.ratio - dx) / k, y = ((event.clientY - box.top) * map.ratio - dy) / k;
  const pen = canvas.getContext("2d");
  pen.save();
  pen.setTransform(1, 0, 0, 1, 0, 0);
  const found = map.shapes.findIndex(({ path, box: b, level }) => level === map.drawn
    && x >= b[0] && x <= b[2] && y >= b[1] && y <= b[3] && pen.isPointInPath(path, x, y, "evenodd"));
  pen.restore();
  return found;
}

async function tell(index) {
  map.over = index;
  const row = map.rows[index];
  draw();
  if (!row) { at("under").textContent = "\u00a0"; return; }
  const [name, code] = await nameOf(row.level, row.unit);
  const more = row.row.error ? tr(", estimate {estimate} ({interval})", { estimate: decimal(row.row.estimate), interval: interval(row.row) }) : "";
  at("under").textContent = `${name}${name === code ? "" : ` (${code})`}: ${tr("protected {count}", { count: integer(row.row.count) })}${more}`;
}

function zoom(factor, x = canvas.width / 2, y = canvas.height / 2) {
  const [k, dx, dy] = placed();
  const next = Math.max(1, Math.min(60, map.scale * factor));
  const [px, py] = [(x - dx) / k, (y - dy) / k];
  map.scale = next;
  const grown = map.fit * next;
  map.x = px - header.map.width / 2 - (x - canvas.width / 2) / grown;
  map.y = py - header.map.height / 2 - (y - canvas.height / 2) / grown;
  if (next === 1) map.x = map.y = 0;
  draw();
}

function move(x, y) {
  const k = map.fit * map.scale;
  const most = (side) => side / 2;
  map.x = Math.max(-most(header.map.width), Math.min(most(header.map.width), map.x - x / k));
  map.y = Math.max(-most(header.map.height), Math.min(most(header.map.height), map.y - y / k));
  draw();
}

function listen() {
  canvas.style.aspectRatio = `${header.map.width} / ${header.map.height}`;
  const fingers = new Map();
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, event);
    moved = 0;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) { tell(under(event)); return; }
    moved += Math.hypot(event.clientX - before.clientX, event.clientY - before.clientY);
    const box = canvas.getBoundingClientRect();
    if (fingers.size === 2) {
      const [other] = [...fingers.values()].filter((one) => one.pointerId !== event.pointerId);
      const apart = (one) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY) || 1;
      zoom(apart(event) / apart(before), (other.clientX - box.left) * map.ratio, (other.clientY - box.top) * map.ratio);
    } else if (moved > 4) {
      move((event.clientX - before.clientX) * map.ratio, (event.clientY - before.clientY) * map.ratio);
    }
    fingers.set(event.pointerId, event);
  });
  const up = (event) => {
    const was = fingers.delete(event.pointerId);
    if (!was || event.type !== "pointerup" || moved > 4) return;
    const index = under(event);
    tell(index);
    if (map.rows[index]) pick(map.rows[index].level, map.rows[index].unit);
  };
  for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, up);
  canvas.addEventListener("pointerleave", () => { if (!fingers.size) tell(-1); });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && document.activeElement !== canvas) return;
    event.preventDefault();
    const box = canvas.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 300), (event.clientX - box.left) * map.ratio, (event.clientY - box.top) * map.ratio);
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const step = 40 * map.ratio;
    const keys = { "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), "0": () => zoom(0), ArrowLeft: () => move(step, 0), ArrowRight: () => move(-step, 0), ArrowUp: () => move(0, step), ArrowDown: () => move(0, -step) };
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
  at("in").addEventListener("click", () => zoom(1.6));
  at("outward").addEventListener("click", () => zoom(1 / 1.6));
  at("all").addEventListener("click", () => zoom(0));
  at("measure").addEventListener("change", (event) => { state.measure = event.target.value; color(); });
  new ResizeObserver(() => map.shapes && draw()).observe(canvas);
}

// --- all ----------------------------------------------------------------------------------------

function selects() {
  options(at("table"), header.tables.map((table, i) => [String(i), words(table.name)]), String(state.table));
  options(at("answer"), header.tables[state.table].labels.map((label, i) => [String(i), words(label)]), String(state.answer));
  at("answer").disabled = header.tables[state.table].labels.length < 2;
  options(at("level"), header.levels.map((level, i) => [String(i), words(level.name)]), String(state.level));
}

async function show() {
  selects();
  await parents();
  const cards = await Promise.all(state.picked.map(([level, unit]) => card(level, unit)));
  at("cards").replaceChildren(...cards);
  at("compare-hint").hidden = state.picked.length > 1;
  await list();
  await color();
  write();
  document.body.dataset.ready = "yes";
}

async function start() {
  if (!("DecompressionStream" in window)) throw new Error(tr("This browser is too old for this page: it cannot unpack it."));
  const asked = read();
  for (const one of asked) {
    const [level, code] = one.includes(":") ? one.split(":") : ["", one];
    const { number } = await placesOf(Number(level));
    if (number.has(code)) state.picked.push([Number(level), number.get(code), code]);
  }
  if (!state.picked.length) state.picked.push([0, 0, (await placesOf(0)).codes[0]]);
  if (!location.hash && header.levels.length > 1) state.level = Math.min(2, header.levels.length - 1);
  const some = await answersOf(state.level, state.table);
  for (const id of ["own-term", "own-text"]) at(id).hidden = !some?.own;
  at("controls").addEventListener("submit", (event) => event.preventDefault());
  at("search").addEventListener("input", suggest);
  at("search").addEventListener("blur", close);
  at("search").addEventListener("keydown", (event) => {
    if (event.key === "Escape") { at("search").value = ""; close(); }
    if (event.key === "Enter") { event.preventDefault(); if (active >= 0) take(active); }
    if ((event.key === "ArrowDown" || event.key === "ArrowUp") && hits.length) {
      event.preventDefault();
      active = (active + (event.key === "ArrowDown" ? 1 : hits.length - 1)) % hits.length;
      mark();
    }
  });
  const choose = (id, key, also = () => {}) => at(id).addEventListener("change", (event) => {
    state[key] = Number(event.target.value);
    state.rows = ROWS;
    also();
    show();
  });
  choose("table", "table", () => { state.answer = 0; });
  choose("answer", "answer");
  choose("level", "level", () => { state.within = ""; });
  at("within").addEventListener("change", (event) => { state.within = event.target.value; state.rows = ROWS; list(); });
  at("more").addEventListener("click", () => { state.rows += ROWS; list(); });
  if (canvas) listen();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => canvas && color());
  await show();
}

start().catch((error) => {
  at("problem").textContent = String(error.message || error);
  at("problem").hidden = false;
});

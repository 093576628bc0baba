// The page: which plan is shown, what is searched, what hand and keyboard do.

const plans = readPlans();
const at = (id) => document.getElementById(id);
const arena = new Arena(at("arena"), plans.kinds);
let plan = null;
let shown = -1;
let matches = [];
let match = -1;

// -- budgets -----------------------------------------------------------------------------------------

const percentText = (share) => `${(100 * share).toFixed(1)} %`;

function showPlan(n) {
  shown = n;
  plan = plans.get(n);
  at("budget").value = n;
  const budget = plan.budget === null ? "none" : bytesText(plan.budget);
  at("budget-text").textContent = budget;
  at("budget").setAttribute("aria-valuetext", `budget ${budget}, peak ${bytesText(plan.peak)}, ${percentText(plan.extra)} extra time`);
  at("peak").textContent = bytesText(plan.peak);
  at("extra").textContent = percentText(plan.extra);
  at("recomputed").textContent = countText(plan.recomputed);
  at("keep-all").textContent = bytesText(plan.keepAll);
  at("keep-all").parentElement.hidden = !plan.keepAll;
  at("host").textContent = `${bytesText(plan.hostBytes)} (${countText(plan.offloaded)} arrays)`;
  at("bound").textContent = bytesText(plan.bound);
  at("method").textContent = `${plan.method}: ${countText(plan.task.length)} steps, ${countText(plan.start.length)} buffers`;
  at("certificate").textContent = plan.certificate.charAt(0).toUpperCase() + plan.certificate.slice(1) + ".";
  for (const tr of document.querySelectorAll("#breakdown tr")) {
    const name = tr.dataset.row;
    tr.lastElementChild.textContent = bytesText(name === "peak" ? plan.peak : plan.breakdown[name] || 0);
  }
  for (const dot of document.querySelectorAll("#frontier circle")) {
    dot.classList.toggle("shown", Number(dot.dataset.plan) === n);
  }
  arena.show(plan, topOf());
  unpin();
  fillFullest(at("fullest"), plan, choose);
  search();
}

// The highest address of the picture: the arena and, where it is not far above, the budget.
function topOf() {
  const about = at("same").checked ? plans.about : [plan];
  let top = Math.max(...about.map((p) => p.arena));
  const room = plan.budget === null ? 0 : plan.budget - plan.problem.fixedBytes;
  if (room > top && room < 1.3 * top) top = room;
  return top * 1.05;
}

// Peak against extra time, one dot for each plan.
function drawFrontier() {
  const svg = at("frontier");
  const [width, height] = [260, 64];
  const points = plans.about.map((p) => [p.peak, p.extra]);
  const [least, most] = [Math.min(...points.map((p) => p[0])), Math.max(...points.map((p) => p[0]))];
  const slowest = Math.max(...points.map((p) => p[1])) || 1;
  const x = (peak) => 8 + ((peak - least) / (most - least || 1)) * (width - 16);
  const y = (extra) => height - 18 - (extra / slowest) * (height - 34);
  const add = (tag, attributes, text = "") => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    svg.append(made);
    return made;
  };
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  add("path", { d: points.map(([p, e], i) => `${i ? "L" : "M"}${x(p)} ${y(e)}`).join("") });
  points.forEach(([p, e], i) => {
    const dot = add("circle", { cx: x(p), cy: y(e), r: 4.5 });
    dot.dataset.plan = i;
    dot.addEventListener("click", () => showPlan(i));
    dot.append(document.createElementNS("http://www.w3.org/2000/svg", "title"));
    dot.lastChild.textContent = `${bytesText(p)}, ${percentText(e)} extra time`;
  });
  add("text", { x: 4, y: height - 2 }, bytesText(least));
  add("text", { x: width - 4, y: height - 2, "text-anchor": "end" }, bytesText(most));
  add("text", { x: 4, y: 8 }, `+${percentText(slowest)} time`);
}

// -- choosing ----------------------------------------------------------------------------------------

function pin(b) {
  arena.pinned = b;
  if (b >= 0) fillDetails(at("details"), plan, b, plans.kinds, choose);
  else at("details").hidden = true;
  arena.redraw();
}

const unpin = () => pin(-1);

function choose(b) {
  pin(b);
  arena.jump(b);
}

// The next or previous buffer in order of time, from the chosen one.
function walk(by) {
  const count = plan.start.length;
  if (!count) return;
  const from = arena.pinned < 0 ? (by > 0 ? -1 : count) : arena.pinned;
  choose((from + by + count) % count);
}

function search() {
  const wanted = at("query").value.trim().toLowerCase();
  matches = [];
  match = -1;
  if (!wanted) {
    arena.found = null;
    at("found").textContent = "";
    arena.redraw();
    return;
  }
  const { problem } = plan;
  const has = (text) => text.toLowerCase().includes(wanted);
  const found = new Uint8Array(plan.start.length);
  plan.start.forEach((s, b) => {
    const t = plan.task[s];
    const named = has(plan.name[b]) || plan.members[b].some((i) => has(problem.values[plan.value[i]]));
    if (named || has(problem.op[t]) || has(problem.kernel[t])) {
      found[b] = 1;
      matches.push(b);
    }
  });
  arena.found = found;
  at("found").textContent = matches.length === 1 ? "1 found" : `${countText(matches.length)} found`;
  arena.redraw();
}

function nextMatch(by) {
  if (!matches.length) return;
  match = match < 0 ? (by > 0 ? 0 : matches.length - 1) : (match + by + matches.length) % matches.length;
  choose(matches[match]);
  at("found").textContent = `${countText(match + 1)} of ${countText(matches.length)}`;
}

// -- hand and keyboard -------------------------------------------------------------------------------

function placeOf(event) {
  const box = arena.canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

function hover(px, py) {
  const b = arena.bufferAt(px, py);
  const tip = at("tip");
  if (b !== arena.hovered) {
    arena.hovered = b;
    arena.redraw();
    if (b >= 0) fillTip(tip, plan, b, plans.kinds);
  }
  tip.hidden = b < 0;
  if (b < 0) return;
  const room = at("stage").getBoundingClientRect();
  const [width, height] = [tip.offsetWidth, tip.offsetHeight];
  tip.style.left = `${Math.max(4, px + 16 + width > room.width ? px - width - 12 : px + 16)}px`;
  tip.style.top = `${Math.max(4, Math.min(py + 16, room.height - height - 4))}px`;
}

function listenToHand(canvas) {
  let last = null;
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    last = placeOf(event);
    moved = 0;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [px, py] = placeOf(event);
    if (!last) return hover(px, py);
    moved += Math.abs(px - last[0]) + Math.abs(py - last[1]);
    if (moved > 4) {
      canvas.classList.add("moving");
      at("tip").hidden = true;
      arena.pan(px - last[0], py - last[1]);
    }
    last = [px, py];
  });
  const release = (event) => {
    if (last && moved <= 4 && event.type === "pointerup") pin(arena.bufferAt(...placeOf(event)));
    last = null;
    canvas.classList.remove("moving");
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => {
    at("tip").hidden = true;
    arena.hovered = -1;
    arena.redraw();
  });
  canvas.addEventListener("dblclick", (event) => arena.zoom(0.5, 0.5, ...placeOf(event)));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    // With Shift some systems turn the wheel sideways; lines and pages count as many pixels.
    const turned = (event.deltaY || event.deltaX) * [1, 16, 400][event.deltaMode];
    const factor = Math.exp(Math.max(-1, Math.min(1, turned / 400)));
    arena.zoom(event.altKey ? 1 : factor, event.shiftKey ? 1 : factor, ...placeOf(event));
    at("tip").hidden = true;
  }, { passive: false });
}

const KEYS = {
  ArrowLeft: () => arena.pan(80, 0),
  ArrowRight: () => arena.pan(-80, 0),
  ArrowUp: () => arena.pan(0, 80),
  ArrowDown: () => arena.pan(0, -80),
  "+": () => arena.zoom(0.7, 0.7),
  "=": () => arena.zoom(0.7, 0.7),
  "-": () => arena.zoom(1 / 0.7, 1 / 0.7),
  0: () => arena.all(),
  Home: () => arena.all(),
  n: () => walk(1),
  p: () => walk(-1),
  k: () => toPeak(),
  Escape: () => unpin(),
};

function toPeak() {
  const time = arena.timeOf(plan.peakStep);
  const half = arena.timeOf(plan.task.length) / 30;
  arena.look(time - half, time + half, 0, arena.top);
}

function listen() {
  listenToHand(arena.canvas);
  arena.canvas.addEventListener("keydown", (event) => {
    const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.matches("input")) return;
    event.preventDefault();
    at("query").focus();
  });
  at("budget").addEventListener("input", () => showPlan(Number(at("budget").value)));
  at("query").addEventListener("input", search);
  at("query").addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      nextMatch(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape") {
      at("query").value = "";
      search();
      arena.canvas.focus();
    }
  });
  at("search").addEventListener("submit", (event) => event.preventDefault());
  at("seconds").addEventListener("change", () => arena.useSeconds(at("seconds").checked));
  at("same").addEventListener("change", () => {
    arena.top = Math.max(topOf(), 64);
    arena.all();
  });
  at("zoom-in").addEventListener("click", KEYS["+"]);
  at("zoom-out").addEventListener("click", KEYS["-"]);
  at("whole").addEventListener("click", KEYS[0]);
  at("to-peak").addEventListener("click", toPeak);
  new ResizeObserver(() => arena.redraw()).observe(arena.canvas);
  const recolour = () => {
    arena.readColours();
    arena.redraw();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
  // On paper always dark on light; the printer does not wait for a frame.
  for (const [name, printing] of [["beforeprint", true], ["afterprint", false]]) {
    addEventListener(name, () => {
      document.documentElement.classList.toggle("print", printing);
      arena.readColours();
      arena.draw();
    });
  }
}

for (const id of ["controls", "picture"]) at(id).hidden = false;
at("host").parentElement.hidden = !plans.about.some((p) => p.offloaded);
at("budget").max = plans.about.length - 1;
at("budgets").hidden = plans.about.length < 2;
at("same").parentElement.hidden = plans.about.length < 2;
if (plans.about.length > 1) drawFrontier();
listen();
showPlan(plans.shown);

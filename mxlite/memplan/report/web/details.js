// Panels of text beside the picture: the chosen tensor, the fullest step.

const LISTED = 12; // lines of a list

function make(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function row(name, ...content) {
  return make("tr", {}, make("th", { scope: "row", textContent: name }), make("td", {}, ...content));
}

function rangeText(from, to) {
  return `[${countText(from)}, ${countText(to)})`;
}

function taskText(plan, step) {
  const t = plan.task[step];
  if (plan.copies(step)) return `copy ${plan.fetches(step) ? "back from" : "out to"} host memory`;
  return `${plan.problem.tasks[t]} (${plan.problem.op[t]})`;
}

// A list of lines; what is beyond the first few is counted.
function lines(items) {
  const list = make("ul", {}, ...items.slice(0, LISTED).map((item) => make("li", {}, item)));
  if (items.length > LISTED) list.append(make("li", { className: "quiet", textContent: `${items.length - LISTED} more` }));
  return list;
}

function jumpButton(text, act) {
  const button = make("button", { type: "button", textContent: text });
  button.addEventListener("click", act);
  return button;
}

const MEANINGS = {
  forward: "made in the forward pass",
  recomputed: "made again for the backward pass",
  backward: "made in the backward pass",
  fetched: "copied back from host memory",
  workspace: "scratch of one call",
};

function liveText(plan, b) {
  const steps = plan.stop[b] - plan.start[b];
  const seconds = plan.clock[plan.stop[b]] - plan.clock[plan.start[b]];
  return `${countText(steps)} step${steps === 1 ? "" : "s"}, ${secondsText(seconds)} modelled`;
}

function fillTip(tip, plan, b, kinds) {
  const step = plan.start[b];
  const t = plan.task[step];
  const kernel = plan.copies(step) ? "" : plan.problem.kernel[t];
  tip.replaceChildren(
    make("b", { textContent: plan.name[b] }),
    make("span", { textContent: `${bytesText(plan.nbytes[b])}, ${MEANINGS[kinds[plan.kind[b]]]}` }),
    make("span", { textContent: `by ${plan.copies(step) ? "a copy" : plan.problem.op[t]}${kernel ? `, kernel ${kernel}` : ""}` }),
    make("span", { textContent: `address ${rangeText(plan.offset[b], plan.offset[b] + plan.nbytes[b])}` }),
    make("span", { textContent: `steps ${rangeText(step, plan.stop[b])}: ${liveText(plan, b)}` }),
  );
  if (plan.members[b].length > 1) {
    tip.append(make("span", { textContent: `${plan.members[b].length - 1} more overwrite it in place` }));
  }
}

// Fills the panel of buffer b; `jump(b)` shows another.
function fillDetails(panel, plan, b, kinds, jump) {
  const { problem } = plan;
  const step = plan.start[b];
  const kind = kinds[plan.kind[b]];
  const body = make("tbody");
  body.append(
    row("what", MEANINGS[kind]),
    row("bytes", `${countText(plan.nbytes[b])} (${bytesText(plan.nbytes[b])})`),
    row("address", rangeText(plan.offset[b], plan.offset[b] + plan.nbytes[b])),
    row("steps", `${rangeText(step, plan.stop[b])} of ${countText(plan.task.length)}`),
    row("alive", liveText(plan, b)),
  );
  if (!plan.members[b].length) addTask(body, plan, step, "used by");
  plan.members[b].forEach((i, n) => {
    if (n >= LISTED) return;
    const v = plan.value[i];
    if (plan.members[b].length > 1) body.append(row(n ? "then in place" : "first", make("b", { textContent: problem.values[v] })));
    addTask(body, plan, plan.made[i], plan.copy[plan.made[i]] ? "made again by" : "made by");
    const readers = plan.readers[i].map((s) => `step ${countText(s)}: ${taskText(plan, s)}${plan.copy[s] ? ", again" : ""}`);
    body.append(row("read by", readers.length ? lines(readers) : "nobody"));
    const others = plan.instancesOf.get(v).filter((other) => other !== i);
    if (others.length) {
      const items = others.map((other) => {
        const at = plan.made[other];
        const how = plan.fetches(at) ? "copied back" : plan.copy[at] ? "made again" : "made first";
        return jumpButton(`${how} at step ${countText(at)}`, () => jump(plan.buffer[other]));
      });
      body.append(row("also", lines(items)));
    }
  });
  if (plan.members[b].length > LISTED) body.append(row("", `${plan.members[b].length - LISTED} more in place`));
  panel.replaceChildren(make("h2", { textContent: plan.name[b] }), make("table", {}, body));
  panel.hidden = false;
}

function addTask(body, plan, step, how) {
  const { problem } = plan;
  const t = plan.task[step];
  if (plan.copies(step)) {
    body.append(row(how, `step ${countText(step)}: ${taskText(plan, step)}`));
    return;
  }
  body.append(row(how, `step ${countText(step)}: ${taskText(plan, step)}, ${secondsText(problem.seconds[t])} modelled`));
  if (problem.kernel[t]) body.append(row("kernel", problem.kernel[t]));
  const named = (list) => list.slice(0, LISTED).map((v) => problem.values[v]).join(", ");
  if (problem.fixedReads[t].length) body.append(row("with", named(problem.fixedReads[t])));
  if (problem.fixedWrites[t].length) body.append(row("changes", named(problem.fixedWrites[t])));
}

// What lies in the arena at its fullest step, the largest first.
function fillFullest(panel, plan, jump) {
  const step = plan.peakStep;
  const held = [];
  plan.start.forEach((s, b) => {
    if (s <= step && step < plan.stop[b]) held.push(b);
  });
  panel.hidden = !held.length;
  if (!held.length) return;
  held.sort((a, b) => plan.nbytes[b] - plan.nbytes[a] || a - b);
  const body = make("tbody");
  for (const b of held.slice(0, LISTED)) {
    // What lies in the buffer then: the last value written so far.
    const now = plan.members[b].filter((i) => plan.made[i] <= step).pop();
    const name = now === undefined ? plan.name[b] : plan.problem.values[plan.value[now]];
    body.append(make("tr", {}, make("td", {}, jumpButton(name, () => jump(b))), make("td", { textContent: bytesText(plan.nbytes[b]) })));
  }
  if (held.length > LISTED) {
    const rest = held.slice(LISTED).reduce((sum, b) => sum + plan.nbytes[b], 0);
    body.append(make("tr", {}, make("td", { textContent: `${countText(held.length - LISTED)} more` }), make("td", { textContent: bytesText(rest) })));
  }
  const heads = ["tensor", "bytes"].map((text) => make("th", { scope: "col", textContent: text }));
  panel.replaceChildren(
    make("h2", { textContent: `Fullest at step ${countText(step)} of ${countText(plan.task.length)}: ${taskText(plan, step)}${plan.copy[step] ? ", again" : ""}` }),
    make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body),
  );
}

// Reads what document.py wrote. Numbers come as base64 of groups of 7 bits, the lowest first.

const RUN = 0; // kinds of steps, as in schedule.py
const FETCH = 2;

function unpacked(text) {
  const bytes = atob(text);
  const numbers = [];
  let n = 0;
  let unit = 1;
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes.charCodeAt(i);
    n += (byte & 127) * unit; // not shifted: numbers may need 53 bits
    if (byte & 128) {
      unit *= 128;
    } else {
      numbers.push(n);
      n = 0;
      unit = 1;
    }
  }
  return numbers;
}

// Differences, where an odd number 2 n + 1 stands for -n - 1.
function summed(text) {
  let total = 0;
  return unpacked(text).map((n) => (total += n % 2 ? -(n + 1) / 2 : n / 2));
}

// Each name says how many characters it shares with the one before.
function named([shared, rest]) {
  let before = "";
  return unpacked(shared).map((n, i) => (before = before.slice(0, n) + rest[i]));
}

function rowsOf(lengths, numbers) {
  let at = 0;
  return lengths.map((n) => numbers.slice(at, (at += n)));
}

function readProblem(data) {
  return {
    tasks: named(data.tasks),
    values: named(data.values),
    op: unpacked(data.op).map((n) => data.ops[n]),
    kernel: unpacked(data.kernel).map((n) => data.kernels[n]),
    seconds: unpacked(data.picoseconds).map((n) => n / 1e12),
    fixedReads: rowsOf(unpacked(data.fixedReads[0]), summed(data.fixedReads[1])),
    fixedWrites: rowsOf(unpacked(data.fixedWrites[0]), summed(data.fixedWrites[1])),
    numForward: data.numForward,
    fixedBytes: data.fixedBytes,
  };
}

// A plan with one array for each property of its steps, instances and buffers.
function readPlan(data, problem, kinds) {
  const plan = { ...data, problem };
  plan.task = summed(data.task);
  plan.copy = unpacked(data.copy);
  const stepKind = unpacked(data.stepKind); // empty: all steps run kernels
  plan.copies = (s) => stepKind.length > 0 && stepKind[s] !== RUN;
  plan.fetches = (s) => stepKind.length > 0 && stepKind[s] === FETCH;
  plan.made = summed(data.made);
  plan.value = summed(data.value);
  plan.buffer = summed(data.buffer);
  plan.start = summed(data.start);
  plan.stop = unpacked(data.steps).map((n, b) => plan.start[b] + n);
  plan.nbytes = unpacked(data.size).map((n) => data.sizes[n]);
  plan.offset = unpacked(data.offset).map((n) => n * data.unit);
  const steps = plan.task.length;

  plan.members = plan.start.map(() => []);
  plan.buffer.forEach((b, i) => plan.members[b].push(i));
  plan.readers = plan.made.map(() => []);
  const madeBefore = new Int32Array(steps + 1); // instances that exist when a step begins
  for (const s of plan.made) madeBefore[s + 1]++;
  for (let s = 0; s < steps; s++) madeBefore[s + 1] += madeBefore[s];
  rowsOf(unpacked(data.readCount), unpacked(data.reads)).forEach((row, s) => {
    for (const back of row) plan.readers[madeBefore[s] - back].push(s);
  });

  plan.kind = plan.start.map((s, b) => {
    if (!plan.members[b].length) return kinds.indexOf("workspace");
    if (plan.fetches(s)) return kinds.indexOf("fetched");
    if (plan.copy[s]) return kinds.indexOf("recomputed");
    return kinds.indexOf(plan.task[s] < problem.numForward ? "forward" : "backward");
  });
  plan.name = plan.start.map((s, b) =>
    plan.members[b].length
      ? problem.values[plan.value[plan.members[b][0]]]
      : `workspace of ${problem.tasks[plan.task[s]]}`,
  );
  plan.instancesOf = new Map();
  plan.value.forEach((v, i) => {
    if (!plan.instancesOf.has(v)) plan.instancesOf.set(v, []);
    plan.instancesOf.get(v).push(i);
  });

  plan.live = new Float64Array(steps);
  const change = new Float64Array(steps + 1);
  plan.start.forEach((s, b) => {
    change[s] += plan.nbytes[b];
    change[plan.stop[b]] -= plan.nbytes[b];
  });
  let total = 0;
  plan.peakStep = 0;
  for (let s = 0; s < steps; s++) {
    plan.live[s] = total += change[s];
    if (total > plan.live[plan.peakStep]) plan.peakStep = s;
  }
  plan.clock = new Float64Array(steps + 1); // modelled seconds before each step
  for (let s = 0; s < steps; s++) {
    // Copies go on beside kernels.
    plan.clock[s + 1] = plan.clock[s] + (plan.copies(s) ? 0 : problem.seconds[plan.task[s]]);
  }
  return plan;
}

// A plan is read when it is first shown: ten of 20,000 buffers would take a second together.
function readPlans() {
  const data = JSON.parse(document.getElementById("plans").textContent);
  const problems = data.problems.map(() => null);
  const plans = data.plans.map(() => null);
  return {
    title: data.title,
    kinds: data.kinds,
    shown: data.shown,
    about: data.plans,
    get(n) {
      if (!plans[n]) {
        const p = data.plans[n].problem;
        problems[p] = problems[p] || readProblem(data.problems[p]);
        plans[n] = readPlan(data.plans[n], problems[p], data.kinds);
      }
      return plans[n];
    },
  };
}

function bytesText(n) {
  if (Math.abs(n) < 1024) return `${n} B`;
  for (const unit of ["KiB", "MiB", "GiB"]) {
    n /= 1024;
    if (Math.abs(n) < 1024) return `${n.toFixed(2)} ${unit}`;
  }
  return `${(n / 1024).toFixed(2)} TiB`;
}

function secondsText(s) {
  if (s >= 1) return `${s.toFixed(2)} s`;
  if (s >= 1e-3) return `${(s * 1e3).toFixed(2)} ms`;
  return `${(s * 1e6).toFixed(1)} µs`;
}

const countText = (n) => n.toLocaleString("en");

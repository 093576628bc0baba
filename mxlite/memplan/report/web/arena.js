// The canvas: address upwards, time to the right. It draws one plan and knows where everything lies.

const MARGIN = { left: 74, right: 12, top: 20, bottom: 34 };
const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif';

class Arena {
  constructor(canvas, kinds) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.kinds = kinds;
    this.plan = null;
    this.inSeconds = false;
    this.found = null; // Uint8Array: what the search has found
    this.pinned = -1;
    this.hovered = -1;
    this.wanted = false;
    this.widths = new Map();
    this.readColours();
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    this.colours = {};
    for (const name of ["plot", "line", "grid", "text", "quiet", "accent", "found", "budget-line", "live", "page"]) {
      this.colours[name] = colour(name);
    }
    this.fills = this.kinds.map(colour);
    this.inks = this.kinds.map((kind) => colour(`on-${kind}`));
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const pen = tile.getContext("2d", { willReadFrequently: true });
    // Not see-through: where a thousand hairs lie on each other they would add up.
    this.faints = this.fills.map((fill) => {
      pen.globalAlpha = 1;
      pen.fillStyle = this.colours.plot;
      pen.fillRect(0, 0, 8, 8);
      pen.globalAlpha = 0.16;
      pen.fillStyle = fill;
      pen.fillRect(0, 0, 8, 8);
      const [r, g, b] = pen.getImageData(0, 0, 1, 1).data;
      return `rgb(${r}, ${g}, ${b})`;
    });
    pen.globalAlpha = 1;
    pen.clearRect(0, 0, 8, 8);
    pen.strokeStyle = "rgba(0,0,0,.28)";
    pen.lineWidth = 1.2;
    for (const x of [-8, 0, 8]) {
      pen.moveTo(x, 8);
      pen.lineTo(x + 8, 0);
    }
    pen.stroke();
    this.hatch = this.context.createPattern(tile, "repeat");
  }

  // -- what is seen ------------------------------------------------------------------------------

  show(plan, top) {
    this.plan = plan;
    this.top = Math.max(top, 64);
    this.pinned = this.hovered = -1;
    this.found = null;
    this.all();
  }

  all() {
    this.view = { x0: 0, x1: this.timeOf(this.plan.task.length) || 1, y0: 0, y1: this.top };
    this.redraw();
  }

  timeOf(step) {
    return this.inSeconds ? this.plan.clock[step] : step;
  }

  useSeconds(inSeconds) {
    this.inSeconds = inSeconds;
    this.all();
  }

  // Scales the window by (fx, fy) around the point (px, py), in pixels of the canvas.
  zoom(fx, fy, px = this.plotLeft + this.plotWidth / 2, py = this.plotTop + this.plotHeight / 2) {
    const v = this.view;
    const x = this.timeAt(px);
    const y = this.addressAt(py);
    this.look(x - (x - v.x0) * fx, x + (v.x1 - x) * fx, y - (y - v.y0) * fy, y + (v.y1 - y) * fy);
  }

  pan(dx, dy) {
    const v = this.view;
    const x = (dx / this.plotWidth) * (v.x1 - v.x0);
    const y = (dy / this.plotHeight) * (v.y1 - v.y0);
    this.look(v.x0 - x, v.x1 - x, v.y0 + y, v.y1 + y);
  }

  // Shows this window, or the nearest that lies within the plan.
  look(x0, x1, y0, y1) {
    const steps = this.plan.task.length;
    const end = this.timeOf(steps) || 1;
    const width = Math.min(end, Math.max(x1 - x0, (end / Math.max(steps, 1)) * 2));
    const height = Math.min(this.top, Math.max(y1 - y0, 512));
    x0 = Math.min(Math.max(0, x0), end - width);
    y0 = Math.min(Math.max(0, y0), this.top - height);
    this.view = { x0, x1: x0 + width, y0, y1: y0 + height };
    this.redraw();
  }

  jump(b) {
    const p = this.plan;
    const x0 = this.timeOf(p.start[b]);
    const x1 = this.timeOf(p.stop[b]);
    const width = Math.max((x1 - x0) * 3, this.timeOf(p.task.length) / 40);
    const height = Math.max(p.nbytes[b] * 4, this.top / 12);
    const x = (x0 + x1) / 2;
    const y = p.offset[b] + p.nbytes[b] / 2;
    this.look(x - width / 2, x + width / 2, y - height / 2, y + height / 2);
  }

  // -- where ---------------------------------------------------------------------------------------

  x(time) {
    return this.plotLeft + ((time - this.view.x0) / (this.view.x1 - this.view.x0)) * this.plotWidth;
  }

  y(address) {
    return this.plotTop + ((this.view.y1 - address) / (this.view.y1 - this.view.y0)) * this.plotHeight;
  }

  timeAt(px) {
    return this.view.x0 + ((px - this.plotLeft) / this.plotWidth) * (this.view.x1 - this.view.x0);
  }

  addressAt(py) {
    return this.view.y1 - ((py - this.plotTop) / this.plotHeight) * (this.view.y1 - this.view.y0);
  }

  // The buffer at a point, -1 if none; the smallest of those within two pixels.
  bufferAt(px, py) {
    if (px < this.plotLeft || py < this.plotTop) return -1;
    if (px > this.plotLeft + this.plotWidth || py > this.plotTop + this.plotHeight) return -1;
    const p = this.plan;
    const [x0, x1] = [this.timeAt(px - 2), this.timeAt(px + 2)];
    const [y0, y1] = [this.addressAt(py + 2), this.addressAt(py - 2)];
    const [x, y] = [this.timeAt(px), this.addressAt(py)];
    let near = -1;
    for (let b = 0; b < p.start.length; b++) {
      const [a, z] = [this.timeOf(p.start[b]), this.timeOf(p.stop[b])];
      const [low, high] = [p.offset[b], p.offset[b] + p.nbytes[b]];
      if (a <= x && x < z && low <= y && y < high) return b;
      if (a < x1 && x0 < z && low < y1 && y0 < high && (near < 0 || p.nbytes[b] < p.nbytes[near])) near = b;
    }
    return near;
  }

  // -- drawing -------------------------------------------------------------------------------------

  redraw() {
    if (this.wanted) return;
    this.wanted = true;
    requestAnimationFrame(() => {
      this.wanted = false;
      this.draw();
    });
  }

  measure() {
    const ratio = window.devicePixelRatio || 1;
    const box = this.canvas.getBoundingClientRect();
    const [width, height] = [Math.round(box.width * ratio), Math.round(box.height * ratio)];
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
    }
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.plotLeft = MARGIN.left;
    this.plotTop = MARGIN.top;
    this.plotWidth = Math.max(1, box.width - MARGIN.left - MARGIN.right);
    this.plotHeight = Math.max(1, box.height - MARGIN.top - MARGIN.bottom);
    this.width = box.width;
    this.height = box.height;
  }

  draw() {
    const began = performance.now();
    this.measure();
    const c = this.context;
    c.font = FONT;
    c.fillStyle = this.colours.plot;
    c.fillRect(0, 0, this.width, this.height);
    this.drawGrid();
    c.save();
    c.beginPath();
    c.rect(this.plotLeft, this.plotTop, this.plotWidth, this.plotHeight);
    c.clip();
    const large = this.drawBuffers();
    this.drawLive();
    for (const [b, x, y, w, h] of large) this.drawName(b, x, y, w, h); // over the line, which would hide letters
    this.drawChosen();
    c.restore();
    this.drawLines();
    this.canvas.dataset.milliseconds = (performance.now() - began).toFixed(1);
  }

  // Pixels of a buffer: left, top, width, height, and both unrounded; null if it is out of sight.
  frame(b) {
    const p = this.plan;
    const x0 = this.x(this.timeOf(p.start[b]));
    const x1 = this.x(this.timeOf(p.stop[b]));
    const y0 = this.y(p.offset[b] + p.nbytes[b]);
    const y1 = this.y(p.offset[b]);
    if (x1 < this.plotLeft || y1 < this.plotTop) return null;
    if (x0 > this.plotLeft + this.plotWidth || y0 > this.plotTop + this.plotHeight) return null;
    const left = Math.round(Math.max(x0, -9));
    const top = Math.round(Math.max(y0, -9));
    const right = Math.round(Math.min(x1, this.width + 9));
    const bottom = Math.round(Math.min(y1, this.height + 9));
    return [left, top, Math.max(1, right - left), Math.max(1, bottom - top), x1 - x0, y1 - y0];
  }

  // Fills a frame and gives its width and height as filled. What is not rounded decides on an edge: equal
  // buffers have all one or none.
  fill([x, y, w, h, wide, high]) {
    const edge = wide > 4 && high > 4 ? 1 : 0; // the background is the edge between neighbours
    this.context.fillRect(x, y, w - edge, h - edge);
    return [w - edge, h - edge];
  }

  // All rectangles; the answer is those that have room for a name.
  drawBuffers() {
    const c = this.context;
    const p = this.plan;
    const again = this.kinds.indexOf("recomputed");
    const large = [];
    const marked = [];
    const byKind = this.kinds.map(() => []);
    const faint = this.kinds.map(() => []);
    for (let b = 0; b < p.start.length; b++) {
      const f = this.frame(b);
      if (f) (this.found && !this.found[b] ? faint : byKind)[p.kind[b]].push(b, f);
    }
    faint.forEach((list, kind) => {
      c.fillStyle = this.faints[kind];
      for (let i = 0; i < list.length; i += 2) this.fill(list[i + 1]);
    });
    byKind.forEach((list, kind) => {
      c.fillStyle = this.fills[kind];
      for (let i = 0; i < list.length; i += 2) {
        const frame = list[i + 1];
        const [x, y, , , wide, high] = frame;
        const [w, h] = this.fill(frame);
        if (this.found) marked.push(frame);
        if (kind === again && wide > 6 && high > 6) {
          c.fillStyle = this.hatch;
          c.fillRect(x, y, w, h);
          c.fillStyle = this.fills[kind];
        }
        if ((w > 34 && h > 12) || (w > 12 && h > 44)) large.push([list[i], x, y, w, h]);
      }
    });
    this.drawSplit();
    c.strokeStyle = this.colours.found;
    c.lineWidth = 2;
    for (const [x, y, w, h] of marked) c.strokeRect(x - 1, y - 1, Math.max(w, 3) + 2, Math.max(h, 3) + 2);
    return large;
  }

  // The name within the part of the rectangle that is seen, upright where it is too narrow to lie.
  drawName(b, x, y, w, h) {
    const c = this.context;
    const p = this.plan;
    const left = Math.max(x, this.plotLeft);
    const top = Math.max(y, this.plotTop);
    const width = Math.min(x + w, this.plotLeft + this.plotWidth) - left;
    const height = Math.min(y + h, this.plotTop + this.plotHeight) - top;
    c.fillStyle = this.inks[p.kind[b]];
    c.textBaseline = "middle";
    c.textAlign = "center";
    if (width > 34 && height > 12) {
      const lines = [this.fitted(p.name[b], width - 6)];
      const size = bytesText(p.nbytes[b]);
      if (height > 34 && this.textWidth(size) < width - 6) lines.push(size);
      lines.forEach((line, i) => {
        c.fillText(line, left + width / 2, top + height / 2 + (i - (lines.length - 1) / 2) * 14);
      });
    } else if (width > 12 && height > 44) {
      const text = this.fitted(p.name[b], height - 6);
      if (!text) return;
      c.save();
      c.translate(left + width / 2, top + height / 2);
      c.rotate(-Math.PI / 2);
      c.fillText(text, 0, 0);
      c.restore();
    }
  }

  // The text, or its beginning and end around an ellipsis; "" where too little of it would be left.
  fitted(text, room) {
    if (text.length > 300) text = `${text.slice(0, 150)}…${text.slice(-150)}`;
    const width = this.textWidth(text);
    if (width <= room) return text;
    const keep = Math.floor((text.length * room) / width) - 2;
    if (keep < 6) return "";
    return `${text.slice(0, Math.ceil(keep / 2))}…${text.slice(-Math.floor(keep / 2))}`;
  }

  textWidth(text) {
    let width = this.widths.get(text);
    if (width === undefined) {
      if (this.widths.size > 5000) this.widths.clear();
      this.widths.set(text, (width = this.context.measureText(text).width));
    }
    return width;
  }

  drawLive() {
    const c = this.context;
    const p = this.plan;
    const steps = p.task.length;
    if (!steps) return;
    // The most in each column of pixels: a peak of one step stays in sight.
    const columns = new Float64Array(Math.ceil(this.plotWidth) + 2).fill(-1);
    for (let s = 0; s < steps; s++) {
      const from = Math.floor(this.x(this.timeOf(s)) - this.plotLeft);
      const to = Math.ceil(this.x(this.timeOf(s + 1)) - this.plotLeft);
      if (to < 0 || from >= columns.length) continue;
      for (let i = Math.max(from, 0); i < Math.min(Math.max(to, from + 1), columns.length); i++) {
        if (p.live[s] > columns[i]) columns[i] = p.live[s];
      }
    }
    c.beginPath();
    columns.forEach((live, i) => {
      if (live < 0) return;
      c.lineTo(this.plotLeft + i, this.y(live));
      c.lineTo(this.plotLeft + i + 1, this.y(live));
    });
    c.lineJoin = "round";
    c.strokeStyle = this.colours.plot;
    c.lineWidth = 3.5;
    c.stroke();
    c.strokeStyle = this.colours.live;
    c.lineWidth = 1.5;
    c.stroke();
  }

  drawChosen() {
    const c = this.context;
    for (const [b, colour, width] of [[this.hovered, this.colours.text, 1.5], [this.pinned, this.colours.live, 3]]) {
      const f = b >= 0 ? this.frame(b) : null;
      if (!f) continue;
      c.strokeStyle = colour;
      c.lineWidth = width;
      c.strokeRect(f[0], f[1], Math.max(f[2], 3), Math.max(f[3], 3));
    }
  }

  drawGrid() {
    const c = this.context;
    const v = this.view;
    c.strokeStyle = this.colours.grid;
    c.fillStyle = this.colours.quiet;
    c.lineWidth = 1;
    c.textBaseline = "middle";
    c.textAlign = "right";
    const rise = niceBytes((v.y1 - v.y0) / (this.plotHeight / 52));
    for (let y = Math.ceil(v.y0 / rise) * rise; y <= v.y1; y += rise) {
      const py = Math.round(this.y(y)) + 0.5;
      line(c, this.plotLeft, py, this.plotLeft + this.plotWidth, py);
      c.fillText(tickText(y, rise), this.plotLeft - 6, py);
    }
    c.textBaseline = "top";
    c.textAlign = "center";
    const run = niceNumber((v.x1 - v.x0) / (this.plotWidth / 90), this.inSeconds ? 0 : 1);
    for (let x = Math.ceil(v.x0 / run) * run; x <= v.x1; x += run) {
      const px = Math.round(this.x(x)) + 0.5;
      line(c, px, this.plotTop, px, this.plotTop + this.plotHeight);
      const text = this.inSeconds ? `${Number((x * 1e3).toPrecision(6))} ms` : countText(Math.round(x));
      if (px < this.plotLeft + this.plotWidth - (this.inSeconds ? 120 : 60)) c.fillText(text, px, this.plotTop + this.plotHeight + 5);
    }
    c.textAlign = "right";
    c.fillText(
      this.inSeconds ? "modelled time" : "step",
      this.plotLeft + this.plotWidth, this.plotTop + this.plotHeight + 5,
    );
  }

  // The arena's end, the budget, the end of the forward pass, the fullest step.
  drawLines() {
    const c = this.context;
    const p = this.plan;
    const right = this.plotLeft + this.plotWidth;
    const bottom = this.plotTop + this.plotHeight;
    const inside = (py) => py >= this.plotTop - 1 && py <= bottom;
    c.textBaseline = "bottom";
    c.textAlign = "right";
    c.lineWidth = 1.5;
    const end = this.y(p.arena);
    const room = p.budget === null ? end : this.y(p.budget - p.problem.fixedBytes);
    if (inside(end)) {
      c.strokeStyle = this.colours.text;
      line(c, this.plotLeft, end, right, end);
      // Above its line, and above the budget's where that passes there.
      const tight = end - room > 1 && end - room < 18;
      const parts = ` = arena ${bytesText(p.arena)} + fixed ${bytesText(p.problem.fixedBytes)}`;
      const peak = `peak ${bytesText(p.peak)}`;
      // On one line with the budget's words in a narrow window: then the sum has no place.
      const taken = p.budget === null ? 0 : c.measureText(budgetText(p)).width + 12;
      const fits = c.measureText(peak + parts).width + 8 <= this.plotWidth - taken;
      this.write(fits ? peak + parts : peak, right - 4, (tight ? room : end) - 3, this.colours.text);
    }
    if (p.budget !== null) {
      if (inside(room)) {
        c.strokeStyle = this.colours["budget-line"];
        c.setLineDash([6, 4]);
        line(c, this.plotLeft, room, right, room);
        c.setLineDash([]);
        c.textAlign = "left";
        this.write(budgetText(p), this.plotLeft + 4, room - 3, this.colours["budget-line"]);
      }
    }
    const split = this.splitX();
    if (split !== null) {
      c.textBaseline = "bottom";
      c.fillStyle = this.colours.quiet;
      c.textAlign = "right";
      if (split - this.plotLeft > 60) c.fillText("forward", split - 5, bottom + 32);
      c.textAlign = "left";
      if (right - split > 70) c.fillText("backward", split + 5, bottom + 32);
    }
    const peak = this.x((this.timeOf(p.peakStep) + this.timeOf(p.peakStep + 1)) / 2);
    if (p.task.length && peak >= this.plotLeft && peak <= right) {
      c.fillStyle = this.colours.found;
      c.beginPath();
      c.moveTo(peak, this.plotTop - 1);
      c.lineTo(peak - 5, this.plotTop - 9);
      c.lineTo(peak + 5, this.plotTop - 9);
      c.fill();
    }
    c.strokeStyle = this.colours.line;
    c.lineWidth = 1;
    c.strokeRect(this.plotLeft + 0.5, this.plotTop + 0.5, this.plotWidth - 1, this.plotHeight - 1);
  }

  // Where the forward pass ends; null out of sight, or where there is no other.
  splitX() {
    const { numForward, task } = this.plan;
    const x = this.x(this.timeOf(numForward));
    return numForward < task.length && x > this.plotLeft && x < this.plotLeft + this.plotWidth ? x : null;
  }

  drawSplit() {
    const c = this.context;
    const x = this.splitX();
    if (x === null) return;
    c.strokeStyle = this.colours.plot;
    c.lineWidth = 1;
    line(c, x, this.plotTop, x, this.plotTop + this.plotHeight);
    c.strokeStyle = this.colours.quiet;
    c.setLineDash([4, 3]);
    line(c, x, this.plotTop, x, this.plotTop + this.plotHeight);
    c.setLineDash([]);
  }

  // Text on a halo: it lies over whatever is there.
  write(text, x, y, colour) {
    const c = this.context;
    c.lineJoin = "round";
    c.strokeStyle = this.colours.plot;
    c.lineWidth = 4;
    c.strokeText(text, x, y);
    c.fillStyle = colour;
    c.fillText(text, x, y);
    c.lineWidth = 1.5;
  }
}

function budgetText(p) {
  return `budget ${bytesText(p.budget)}`;
}

function line(c, x0, y0, x1, y1) {
  c.beginPath();
  c.moveTo(x0, y0);
  c.lineTo(x1, y1);
  c.stroke();
}

// The next of 1, 2, 4, ... bytes.
function niceBytes(n) {
  return 2 ** Math.max(0, Math.ceil(Math.log2(n)));
}

// The next of ..., 1, 2, 5, 10, ...
function niceNumber(n, least) {
  const ten = 10 ** Math.floor(Math.log10(n));
  return Math.max(least, [1, 2, 5, 10].find((k) => k * ten >= n * 0.999) * ten);
}

function tickText(n, rise) {
  let unit = 0;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  while (unit < 4 && (n || rise) >= 1024 ** (unit + 1)) unit++;
  return `${Number((n / 1024 ** unit).toFixed(3))} ${units[unit]}`;
}

// One line over the past minutes, as SVG.

const NAMESPACE = "http://www.w3.org/2000/svg";
const LEFT = 58, RIGHT = 8, TOP = 10, BOTTOM = 20, HEIGHT = 150;

function make(parent, name, attributes) {
  const element = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  parent.append(element);
  return element;
}

const TIME_STEPS = [10, 15, 30, 60, 120, 300, 600].map((seconds) => seconds * 1000);

// 1, 2 or 5 times a power of ten, so that about `count` of them fill `range`.
function niceStep(range, count) {
  const power = 10 ** Math.floor(Math.log10(range / count));
  const times = range / count / power;
  return power * (times < 1.5 ? 1 : times < 3.5 ? 2 : times < 7.5 ? 5 : 10);
}

// With as many digits as tell it from the next tick.
function tickText(value, step) {
  if (Math.abs(value) < step / 1e6) return "0";
  const size = Math.abs(value);
  const [unit, letter] = size >= 1e9 ? [1e9, "G"] : size >= 1e6 ? [1e6, "M"]
      : size >= 1e4 ? [1e3, "k"] : [1, ""];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9));
  return digits > 6 ? value.toExponential(1) : (value / unit).toFixed(digits) + letter;
}

function agoText(ms) {
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds} s ago`;
  const minutes = seconds / 60;
  return `${Number.isInteger(minutes) ? minutes : minutes.toFixed(1)} min ago`;
}

export class Chart {
  // `figure` has a caption with an output; `format` writes a value. With `fromZero` the axis begins
  // at 0.
  constructor(figure, format, fromZero) {
    this.figure = figure;
    this.format = format;
    this.fromZero = fromZero;
    this.output = figure.querySelector("output");
    this.name = figure.querySelector("figcaption").firstChild.textContent.trim();
    this.points = [];
    const plot = document.createElement("div");
    plot.className = "plot";
    figure.append(plot);
    this.svg = make(plot, "svg", {role: "img"});
    new ResizeObserver(() => this.draw()).observe(plot);
    plot.addEventListener("pointermove", (event) => this.point(event));
    plot.addEventListener("pointerleave", () => this.unpoint());
  }

  // [time in ms, value or null], oldest first.
  update(points) {
    this.points = points;
    this.draw();
  }

  known() { return this.points.filter((point) => point[1] !== null); }

  scale() {
    const width = this.svg.clientWidth || 300;
    const known = this.known();
    const values = known.map((point) => point[1]);
    const last = this.points[this.points.length - 1][0];
    // Half a minute at least, so that the first samples do not fill the width.
    const first = Math.min(this.points[0][0], last - 30000);
    let low = this.fromZero ? 0 : Math.min(...values);
    let high = Math.max(...values);
    if (high - low < 1e-9) {
      high += Math.abs(high) * 0.1 || 1;
      if (!this.fromZero) low -= Math.abs(low) * 0.1;
    }
    const step = niceStep(high - low, 3);
    low = Math.floor(low / step) * step;
    high = Math.ceil(high / step) * step;
    const across = width - LEFT - RIGHT, up = HEIGHT - TOP - BOTTOM;
    return {width, first, last, low, high, step,
            x: (t) => LEFT + (t - first) / (last - first) * across,
            y: (v) => TOP + (high - v) / (high - low) * up};
  }

  draw() {
    const known = this.known();
    this.svg.replaceChildren();
    this.cursor = null;
    if (known.length === 0) {
      this.output.textContent = "";
      this.svg.setAttribute("aria-label", `${this.name}: no data yet`);
      make(this.svg, "text", {x: LEFT, y: HEIGHT / 2}).textContent = "No data yet";
      return;
    }
    const s = this.s = this.scale();
    this.svg.setAttribute("viewBox", `0 0 ${s.width} ${HEIGHT}`);
    this.drawAxes(s);
    this.drawCurve(s);
    const latest = this.format(known[known.length - 1][1]);
    const values = known.map((point) => point[1]);
    this.svg.setAttribute("aria-label",
        `${this.name}: now ${latest}, lowest ${this.format(Math.min(...values))}, highest ` +
        `${this.format(Math.max(...values))} in the past ${agoText(s.last - s.first).replace(" ago", "")}`);
    if (this.pointer === undefined) this.output.textContent = latest;
    else this.showPointer();
  }

  drawAxes(s) {
    for (let v = s.low; v <= s.high + s.step / 2; v += s.step) {
      make(this.svg, "line", {class: "grid", x1: LEFT, x2: s.width - RIGHT, y1: s.y(v), y2: s.y(v)});
      make(this.svg, "text", {x: LEFT - 6, y: s.y(v) + 4, "text-anchor": "end"}).textContent =
          tickText(v, s.step);
    }
    make(this.svg, "text", {x: s.width - RIGHT, y: HEIGHT - 4, "text-anchor": "end"}).textContent =
        "now";
    // The narrowest of these steps that leaves room for the labels.
    const wanted = (s.last - s.first) * 90 / (s.width - LEFT - RIGHT);
    const step = TIME_STEPS.find((ms) => ms >= wanted) ?? TIME_STEPS[TIME_STEPS.length - 1];
    for (let ago = step; ago <= s.last - s.first; ago += step) {
      const x = s.x(s.last - ago);
      make(this.svg, "line", {class: "grid", x1: x, x2: x, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 4});
      const anchor = x - LEFT < 40 ? "start" : "middle";
      make(this.svg, "text", {x, y: HEIGHT - 4, "text-anchor": anchor}).textContent = agoText(ago);
    }
  }

  drawCurve(s) {
    let line = "", area = "", open = null;
    const close = () => {
      if (open !== null) area += `L${open} ${s.y(s.low)}Z`;
      open = null;
    };
    for (const [t, v] of this.points) {
      if (v === null) {
        close();
        continue;
      }
      const x = s.x(t).toFixed(1), y = s.y(v).toFixed(1);
      if (open === null) {
        line += `M${x} ${y}`;
        area += `M${x} ${s.y(s.low)}L${x} ${y}`;
      } else {
        line += `L${x} ${y}`;
        area += `L${x} ${y}`;
      }
      open = x;
    }
    close();
    make(this.svg, "path", {class: "under", d: area});
    make(this.svg, "path", {class: "curve", d: line});
  }

  point(event) {
    this.pointer = event.clientX - this.svg.getBoundingClientRect().left;
    this.showPointer();
  }

  unpoint() {
    this.pointer = undefined;
    this.draw();
  }

  showPointer() {
    const known = this.known();
    if (known.length === 0) return;
    const s = this.s;
    const near = known.reduce((best, point) =>
        Math.abs(s.x(point[0]) - this.pointer) < Math.abs(s.x(best[0]) - this.pointer) ? point : best);
    if (this.cursor) this.cursor.remove();
    this.cursor = make(this.svg, "g", {});
    const x = s.x(near[0]);
    make(this.cursor, "line", {class: "cursor", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM});
    make(this.cursor, "circle", {class: "dot", cx: x, cy: s.y(near[1]), r: 3.5});
    this.output.textContent = `${this.format(near[1])}, ${agoText(s.last - near[0])}`;
  }
}

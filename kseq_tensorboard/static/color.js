/** Color ramps of even steps to the eye, made in the OKLCH color space. */

const STEPS = 256;
// lightness, chroma, hue in degrees; the first one is the ground of the page
const STOPS = {
  light: [
    [0.985, 0.005, 220],
    [0.9, 0.05, 215],
    [0.74, 0.11, 232],
    [0.55, 0.15, 255],
    [0.38, 0.15, 275],
    [0.23, 0.09, 285],
  ],
  dark: [
    [0.265, 0.012, 265],
    [0.34, 0.08, 280],
    [0.46, 0.13, 285],
    [0.61, 0.15, 320],
    [0.78, 0.13, 50],
    [0.96, 0.08, 95],
  ],
};
const tables = {};

/** RGB bytes of the ramp of the present theme, 256 colors from 0 to 1. */
export function ramp() {
  const theme = document.documentElement.dataset.theme;
  tables[theme] ??= makeTable(STOPS[theme]);
  return tables[theme];
}

/** CSS color of a value between 0 and 1. */
function rampColor(unit) {
  const place = 3 * index(unit);
  return `rgb(${ramp().slice(place, place + 3).join(" ")})`;
}

/** CSS gradient from 0 to 1, for the scale beside a picture. */
export function rampGradient() {
  const stops = Array.from({ length: 17 }, (_, i) => rampColor(i / 16));
  return `linear-gradient(to right, ${stops.join(", ")})`;
}

/** Colors of `units` as pixels; what is not finite gets the CSS variable --alarm. */
export function paint(units, width, height, alarm) {
  const image = new ImageData(width, height);
  const table = ramp();
  for (let i = 0; i < units.length; i++) {
    const finite = Number.isFinite(units[i]);
    const place = 3 * index(units[i]);
    for (let channel = 0; channel < 3; channel++) {
      image.data[4 * i + channel] = finite ? table[place + channel] : alarm[channel];
    }
    image.data[4 * i + 3] = 255;
  }
  return image;
}

function index(unit) {
  return Math.round(Math.min(Math.max(unit, 0), 1) * (STEPS - 1));
}

function makeTable(stops) {
  const table = new Uint8Array(3 * STEPS);
  for (let i = 0; i < STEPS; i++) {
    const place = (i / (STEPS - 1)) * (stops.length - 1);
    const left = Math.min(Math.floor(place), stops.length - 2);
    // mixed in the plane of a and b, where hues do not go around the wheel
    const [a, b] = [stops[left], stops[left + 1]].map(toLab);
    const mixed = a.map((value, axis) => value + (place - left) * (b[axis] - value));
    table.set(toRgb(mixed), 3 * i);
  }
  return table;
}

function toLab([lightness, chroma, hue]) {
  const angle = (hue * Math.PI) / 180;
  return [lightness, chroma * Math.cos(angle), chroma * Math.sin(angle)];
}

/** Ottosson, 2020, "A perceptual color space for image processing". */
function toRgb([L, a, b]) {
  const l = (L + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (L - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (L - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return linear.map((value) => {
    const clipped = Math.min(Math.max(value, 0), 1);
    const encoded = clipped <= 0.0031308 ? 12.92 * clipped : 1.055 * clipped ** (1 / 2.4) - 0.055;
    return Math.round(255 * encoded);
  });
}

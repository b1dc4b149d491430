// Round numbers for the axis of a chart.

const STEPS = [1, 2, 2.5, 5, 10];

/** The lines of an axis from 0 to at least `most`: about three of them. */
export function ticks(most) {
  if (!(most > 0)) return [0, 1];
  const rough = most / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * STEPS.find((candidate) => candidate * power >= rough * 0.999);
  const lines = [];
  for (let at = 0; at < most + step * 0.999; at += step) lines.push(Number(at.toPrecision(12)));
  return lines;
}

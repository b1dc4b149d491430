// Aggregates of samples: rates and fractions.

const sum = (samples, name) => samples.reduce((total, sample) => total + (sample[name] ?? 0), 0);

/** The value of one interval: the worst represents a high percentile, the middle one a median. */
function ranked(samples, name, place) {
  const values = samples.map((sample) => sample[name]).filter((value) => value > 0).sort((a, b) => a - b);
  return values.at(place === 'worst' ? -1 : Math.floor(values.length / 2)) ?? null;
}

/** Aggregates samples. Fractions are from 0 to 1, times are in microseconds. */
export function statistics(samples, interval) {
  const seconds = Math.max(1, samples.length * interval);
  const decisions = sum(samples, 'decisions');
  const denied = sum(samples, 'over_limit');
  const part = (value) => (decisions === 0 ? 0 : value / decisions);
  return {
    rate: decisions / seconds,
    denied: part(denied),
    deniedRate: denied / seconds,
    listRate: sum(samples, 'list_denied') / seconds,
    // Counts descriptors; a request may have several.
    degradedRate: sum(samples, 'degraded') / seconds,
    errors: part(sum(samples, 'errors')),
    call_p50: ranked(samples, 'call_p50_us', 'middle'),
    call_p99: ranked(samples, 'call_p99_us', 'worst'),
    store_p50: ranked(samples, 'store_p50_us', 'middle'),
    store_p99: ranked(samples, 'store_p99_us', 'worst'),
  };
}

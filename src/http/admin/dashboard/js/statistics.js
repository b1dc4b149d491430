// Aggregates of samples: rates and fractions.

const sum = (samples, name) => samples.reduce((total, sample) => total + (sample[name] ?? 0), 0);

/** The worst interval represents a high percentile, the middle one a median. */
function worst(samples, name) {
  const values = samples.map((sample) => sample[name]).filter((value) => value > 0);
  return values.length === 0 ? null : Math.max(...values);
}

function middle(samples, name) {
  const values = samples.map((sample) => sample[name]).filter((value) => value > 0).sort((a, b) => a - b);
  return values.length === 0 ? null : values[Math.floor(values.length / 2)];
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
    call_p50: middle(samples, 'call_p50_us'),
    call_p99: worst(samples, 'call_p99_us'),
    store_p50: middle(samples, 'store_p50_us'),
    store_p99: worst(samples, 'store_p99_us'),
  };
}

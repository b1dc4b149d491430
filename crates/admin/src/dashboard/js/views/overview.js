// Overview of traffic, latency, rules, keys and instances.

import { chart } from '../chart.js';
import { head, notice, panel, troubles } from '../controls.js';
import { h, redraw } from '../dom.js';
import { micros, percent, rate } from '../format.js';
import { all } from '../observable.js';
import { data, watch } from '../poll.js';
import { statistics } from '../statistics.js';
import { latestEvents } from './events.js';
import { instances } from './instances.js';
import { origin } from './origin.js';
import { topRules } from './rules.js';
import { noRules, topKeys } from './talkers.js';

const SPAN_MS = 15 * 60_000;

export function overview() {
  const headlines = h('dl', { class: 'headlines', 'aria-label': 'The last minute' });
  const warnings = h('div', { class: 'stack', role: 'status' });
  const unruled = h('div', { class: 'stack', role: 'status' });
  const decisions = decisionChart();
  const latency = latencyChart();
  const rulesNow = topRules();
  const keysNow = topKeys();
  const fleet = instances();
  const eventsNow = latestEvents();
  const from = origin('history');
  const trouble = troubles('history', 'status');
  const stop = all(trouble.stop, eventsNow.stop, from.stop, rulesNow.stop, keysNow.stop, fleet.stop, decisions.stop, latency.stop,
    watch('history'),
    data.status.subscribe((status) => warn(warnings, status)),
    data.top.subscribe((top) => {
      const names = (top?.domains ?? []).filter((one) => !one.has_rules).map((one) => one.domain);
      redraw(unruled, names.join('\n'), () => names.map(noRules));
    }),
    data.history.subscribe((history) => history && show(history)));

  function show(history) {
    const now = statistics(history.samples.slice(-12), history.interval_s);
    redraw(headlines, JSON.stringify(now), () => headline(now));
    const whole = statistics(history.samples, history.interval_s);
    decisions.update(history.samples, `Within 15 minutes ${rate(whole.rate)} a second, ${percent(whole.denied)} of them
      denied; now ${rate(now.rate)} a second, ${percent(now.denied)} of them denied.`);
    latency.update(history.samples, `Now the 99th percentile of a gRPC call is ${micros(now.call_p99)}, that of the store
      ${micros(now.store_p99)}.`);
  }

  const node = h('div', { class: 'view' }, head('Overview', 'Decisions of all instances: numbers of the last minute, charts of the last 15 minutes.'), warnings, unruled, trouble.node, from.node,
    headlines,
    h('div', { class: 'split' },
      panel('Decisions', 'requests per second', decisions.node),
      panel('Latency', 'of gRPC calls and of the store', latency.node)),
    rulesNow.node, keysNow.node, eventsNow.node, fleet.node);
  return { title: 'Overview', node, stop };
}

function decisionChart() {
  // Samples cover an interval and are shown as rates.
  const each = (value) => (sample) => value(sample) / (data.history.get().interval_s || 1);
  const denied = (sample) => sample.over_limit;
  // Counts degraded descriptors, of which a request may have several: capped at the number of requests.
  const unhealthy = (sample) => Math.min(sample.degraded + sample.errors, sample.decisions - denied(sample));
  return chart({
    name: 'Decisions per second',
    span: SPAN_MS,
    isStacked: true,
    show: rate,
    series: [
      { name: 'denied', kind: 'over', value: each(denied) },
      { name: 'degraded, failed', kind: 'degraded', value: each(unhealthy) },
      { name: 'passed', kind: 'calm',
        value: each((sample) => sample.decisions - denied(sample) - unhealthy(sample)) },
    ],
  });
}

function latencyChart() {
  // Without requests there is no latency.
  const given = (name) => (sample) => sample[name] || null;
  return chart({
    name: 'Latency',
    span: SPAN_MS,
    show: micros,
    series: [
      { name: 'gRPC p99', kind: 'strong-line', value: given('call_p99_us') },
      { name: 'gRPC p50', kind: 'faint-line', value: given('call_p50_us') },
      { name: 'store p99', kind: 'store-line', value: given('store_p99_us') },
      { name: 'store p50', kind: 'store-faint-line', value: given('store_p50_us') },
    ],
  });
}

const isEmbedded = () => data.status.get()?.store.kind === 'memory';

function headline(now) {
  const one = (name, [value, unit], beside, state = '') => h('div', { class: 'headline', data: { state } },
    h('dt', {}, name),
    h('dd', { class: 'big' }, value, unit && h('span', {}, unit)),
    h('dd', { class: 'beside' }, beside));
  const parts = (said) => said.split(' ');
  return [
    one('Decisions', [rate(now.rate), '/s'], now.rate > 0 ? 'over the last minute' : 'none in the last minute'),
    one('Denied', parts(percent(now.denied)), `${rate(now.deniedRate)} a second${now.listRate > 0 ? `, ${rate(now.listRate)} by list` : ''}`, now.denied > 0.5 ? 'warn' : ''),
    one('Degraded', [rate(now.degradedRate), '/s'], now.degradedRate > 0 ? 'decided without the store' : 'all decided by the store',
      now.degradedRate > 0 ? 'bad' : ''),
    one('Errors', parts(percent(now.errors)), now.errors > 0 ? 'failed calls' : 'no failed calls', now.errors > 0 ? 'bad' : ''),
    one('gRPC p99', micros(now.call_p99).split(' '), now.call_p50 === null ? 'no gRPC calls' : `p50 ${micros(now.call_p50)}`),
    one('Store p99', micros(now.store_p99).split(' '), isEmbedded() ? 'embedded' : now.store_p50 === null ? 'no requests' : `p50 ${micros(now.store_p50)}`),
  ];
}

function warn(node, status) {
  if (!status) return;
  const { rules, phase, store } = status;
  // The control store does not respond, or calls of the counters' store fail.
  const isOutage = Boolean(status.problem) || Number(store.breakers_open) > 0;
  const warnings = [
    isOutage && ['bad', 'The store is unavailable',
      'Requests are decided by their on_store_error policies until it recovers.'],
    rules.problem && (isOutage && rules.source === 'redis'
      ? ['warn', 'Newer rules cannot be read', rules.problem]
      : ['bad', 'Newer rules are not active', rules.problem]),
    phase === 'starting' && ['warn', 'Starting', 'This instance does not accept calls yet.'],
    phase === 'stopping' && ['warn', 'Stopping', 'This instance accepts no new connections.'],
  ].filter(Boolean);
  redraw(node, JSON.stringify(warnings), () => warnings.map(([kind, what, why]) =>
    notice(kind, h('p', {}, h('span', { class: 'strong' }, `${what}. `), why))));
  node.hidden = warnings.length === 0;
}

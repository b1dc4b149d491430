// Unusual traffic of rules and domains, compared with the same hours of the last weeks.

import { badge, panel } from '../controls.js';
import { h, text } from '../dom.js';
import { ago, count, date, percent, plural, rate } from '../format.js';
import { data, watch } from '../poll.js';
import { table } from '../table.js';
import { all } from '../observable.js';

const MAX_RECENT = 5;

const KINDS = {
  rate_high: 'more hits',
  rate_low: 'fewer hits',
  rate_drift: 'drift of hits',
  denied_share_high: 'more denied',
};

export function anomalies() {
  const list = table({
    caption: 'Unusual traffic, the present one first',
    keyOf: (anomaly) => [anomaly.domain, anomaly.rule, anomaly.kind, anomaly.since_ms].join('\n'),
    empty: 'No unusual traffic.',
    columns: [
      { id: 'kind', label: 'Deviation', kind: 'tight', mark: (anomaly) => anomaly.ended_at_ms,
        node: (get) => badge(KINDS[get().kind] ?? get().kind, get().ended_at_ms === null ? 'warn' : '') },
      { id: 'rule', label: 'Rule', isHead: true,
        node: (get) => h('div', {}, h('span', { class: 'path' }, get().rule ?? 'all rules'), h('span', { class: 'below' }, get().domain)) },
      { id: 'observed', label: 'Observed', kind: 'numeric', text: (anomaly) => value(anomaly, anomaly.observed) },
      { id: 'usual', label: 'Usual', kind: 'numeric', text: usual },
      { id: 'since', label: 'Since', text: (anomaly) => date(anomaly.since_ms) },
      { id: 'end', label: 'Ended', text: ended },
    ],
  });
  const note = h('span');
  const stop = all(watch('anomalies'), data.anomalies.subscribe((found) => {
    if (!found) return;
    text(note, state(found));
    list.update([...found.active, ...found.recent.slice(0, MAX_RECENT)]);
  }));
  return { node: panel('Unusual traffic', note, list.node), stop };
}

const value = ({ kind }, amount) => (kind === 'denied_share_high' ? percent(amount) : `${rate(amount)} /min`);

function usual(anomaly) {
  if (anomaly.kind === 'rate_drift') return value(anomaly, anomaly.expected);
  return `${value(anomaly, anomaly.low)} to ${value(anomaly, anomaly.high)}`;
}

function ended({ ended_at_ms, is_accepted }) {
  if (ended_at_ms === null) return 'lasts';
  return is_accepted ? `${ago(ended_at_ms)}, as the new normal` : ago(ended_at_ms);
}

function state({ sensitivity, evaluated_at_ms, is_complete, learned, learning }) {
  if (sensitivity === 'off') return 'not watched by this instance (--anomalies off)';
  if (evaluated_at_ms === 0) return 'no minute was evaluated yet';
  const parts = [`${plural(learned, 'rule or domain', 'rules and domains')} with a baseline`];
  if (learning > 0) parts.push(`${count(learning)} learning, which takes 8 days`);
  if (!is_complete) parts.push('an instance did not report the last minute');
  return parts.join('; ');
}

// The regions that enforce limits together.

import { badge, head, notice, panel, troubles } from '../controls.js';
import { h, redraw } from '../dom.js';
import { ago, count, percent, plural } from '../format.js';
import { all } from '../observable.js';
import { data, watch } from '../poll.js';
import { table } from '../table.js';

export function regions() {
  const list = table({
    caption: 'Regions, their shares and loans, and calls to the primary region',
    keyOf: (region) => region.name,
    empty: 'No region table. Start tollgate with --regions to enforce limits in several regions together.',
    columns: [
      { id: 'name', label: 'Region', isHead: true, mark: (region) => `${region.own}${region.isPrimary}${region.address}`,
        node: (get) => h('div', {}, h('div', { class: 'row' }, h('code', {}, get().name), get().own && h('span', { class: 'muted' }, 'this one'),
          get().isPrimary && h('span', { class: 'muted' }, 'primary')),
          h('span', { class: 'below' }, get().address)) },
      { id: 'state', label: 'State', kind: 'tight', mark: (region) => JSON.stringify([region.lost, region.own, region.up, region.error]),
        node: (get) => state(get()) },
      { id: 'share', label: 'Share', kind: 'numeric', text: (region) => (region.lost ? 'none' : percent(region.share)) },
      { id: 'generation', label: 'Generation', kind: 'numeric', text: (region) => given(region.generation) },
      { id: 'trip', label: 'Round trip', kind: 'numeric', text: (region) => millis(region.round_trip_ms) },
      { id: 'offset', label: 'Clock offset', kind: 'numeric', text: (region) => millis(region.clock_offset_ms) },
      { id: 'requests', label: 'Loan requests', kind: 'numeric', text: (region) => (region.loan_requests ? loanRequests(region.loan_requests) : '–') },
      { id: 'borrowed', label: 'Borrowed hits', kind: 'numeric', text: (region) => given(region.borrowed_hits) },
      { id: 'lent', label: 'Lent hits', kind: 'numeric', text: (region) => given(region.lent_hits) },
      { id: 'calls', label: 'Primary calls', kind: 'numeric', text: (region) => (region.primary_calls ? calls(region) : '–') },
    ],
  });
  const warnings = h('div', { class: 'stack', role: 'status', hidden: true });
  const trouble = troubles('regions');
  const stop = all(trouble.stop, watch('regions'), data.regions.subscribe((answer) => {
    if (!answer) return;
    list.update(answer.regions.map((region) => ({ ...region, isPrimary: region.name === answer.primary })));
    const found = problems(answer);
    warnings.hidden = found.length === 0;
    redraw(warnings, JSON.stringify(found), () => found.map(([kind, what, why]) =>
      notice(kind, h('p', {}, h('span', { class: 'strong' }, `${what}. `), why))));
  }));
  const node = h('div', { class: 'view' },
    head('Regions', 'Parts of every limit with scope: global, what regions lend each other, and calls to the primary region, as this instance has it.'),
    trouble.node, warnings, panel('Regions', '', list.node));
  return { title: 'Regions', node, stop };
}

const given = (value) => (value === null || value === undefined ? '–' : count(value));
const millis = (value) => (value === null || value === undefined ? '–' : `${value} ms`);

function state({ lost, own, up, error }) {
  if (lost) return badge('lost', 'warn');
  if (own || up) return badge(own ? 'own' : 'up', 'ok');
  return h('div', {}, badge('down', 'bad'), error && h('span', { class: 'below' }, error));
}

function loanRequests({ granted = 0, part = 0, refused = 0, timeout = 0, generation = 0 }) {
  const unanswered = refused + timeout + generation;
  return `${count(granted + part)}${unanswered > 0 ? `, ${count(unanswered)} in vain` : ''}`;
}

// Calls sent to the primary region, or those that it answered.
function calls({ primary_calls: sent, primary_answers: answered }) {
  const sum = (counts) => Object.values(counts).reduce((all, one) => all + one, 0);
  const counts = sum(sent) > 0 ? sent : answered;
  const unanswered = sum(counts) - counts.decided;
  return `${count(counts.decided)}${unanswered > 0 ? `, ${count(unanswered)} in vain` : ''}`;
}

function problems({ unfinished_changes, waiting_for, file_error, generation, regions: all, rules, ...more }) {
  const others = all.filter((region) => !region.own && !region.lost && region.up);
  const differing = others.filter((region) => (region.generation ?? generation) !== generation);
  return [
    file_error && ['bad', 'The region table is not valid', file_error],
    unfinished_changes > 0 && ['warn', `Not all regions have announced generation ${generation}`,
      `Until ${waiting_for.join(', ')} announce it, each region uses the smaller one of its shares.`],
    more.primary_pending && ['warn', 'This region does not decide as the primary region yet',
      `It waits until ${waiting_for.join(', ')} announce generation ${generation}.`],
    more.share_denials > 0 && ['', `${plural(more.share_denials, 'hit', 'hits')} denied by shares`,
      'Since the start of this instance, the share of this region denied them, while others had room or may have had.'],
    differing.length > 0 && ['warn', plural(differing.length, 'region has another generation', 'regions have another generation'),
      `Nothing is lent between this region and ${differing.map((region) => region.name).join(', ')}.`],
    rules && ['', `Rules, lists, switches and overrides are copied from ${rules.region}`,
      rules.compared_ms === null ? 'They were never compared.' : `Compared ${ago(rules.compared_ms)}. Change them there.`],
    rules?.problem && ['bad', 'Rules are not compared', rules.problem],
  ].filter(Boolean);
}

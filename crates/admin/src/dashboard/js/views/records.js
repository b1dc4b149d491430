// Runtime changes: overrides, list entries, automatic entries and switches.

import { call, query } from '../api.js';
import { busy, button, field, head, notice, panel, troubles, viewerNotice, writeButton } from '../controls.js';
import { h, text } from '../dom.js';
import { count, date } from '../format.js';
import { link } from '../links.js';
import { say } from '../messages.js';
import { all } from '../observable.js';
import { data, refresh, showRecords, watch } from '../poll.js';
import { KINDS, domainOf, effect, end, kindOf, subject, total } from '../record.js';
import { table } from '../table.js';
import { beginDialog, emergencyDialog } from './emergency_dialog.js';
import { listDialog } from './list_dialog.js';
import { overrideDialog } from './override_dialog.js';
import { removalDialog } from './record_dialog.js';
import { switchDialog } from './switch_dialog.js';

const PAGE = 100;
const TYPING_MS = 250;

export function records(parameters) {
  const [domain, rule] = ['domain', 'rule'].map((name) => parameters.get(name) ?? undefined);
  const search = h('input', { type: 'search', maxlength: 200, value: parameters.get('search') ?? '', placeholder: 'api_key, /login, incident',
    on: { input: () => { clearTimeout(typing); typing = setTimeout(show, TYPING_MS, []); } } });
  const options = [['', 'All kinds'], ...KINDS].map(([kind, label]) => ({ kind, label, node: h('option', { value: kind }, label) }));
  const kind = h('select', { value: parameters.get('kind') ?? '', on: { change: () => show([]) } }, options.map(({ node }) => node));
  const back = button('Previous page', () => back.ariaDisabled || show(starts.slice(0, -1)));
  const on = button('Next page', () => on.ariaDisabled || show([...starts, data.records.get().records.at(-1).key]));
  const place = h('span', { class: 'small muted', role: 'status' });
  const pager = h('div', { class: 'row', hidden: true }, back, on, place);
  const list = recordTable();
  const viewer = viewerNotice();
  const trouble = troubles('records');
  let typing;
  // The key after which each page begins, from the second one on.
  let starts = [];

  /** Requests the page with these starts. */
  function show(those) {
    if (those.length !== starts.length) scrollTo(0, 0);
    starts = those;
    [back, on].forEach((one) => busy(one, true));
    const words = search.value.trim();
    list.say(words || kind.value || domain || rule ? 'Nothing matches.'
      : 'No runtime changes. Each takes effect on every instance within 2 seconds.');
    showRecords(query('records', { kind: kind.value || undefined, domain, rule, search: words || undefined, after: starts.at(-1), limit: PAGE }));
  }

  function draw({ records: page, counts, is_truncated: isTruncated }) {
    options.forEach(({ kind: name, label, node }) => text(node, `${label} (${count(name ? counts[name] : total(counts))})`));
    list.update(page);
    pager.hidden = !isTruncated && starts.length === 0;
    busy(back, starts.length === 0);
    busy(on, !isTruncated);
    text(place, `Page ${starts.length + 1}. The columns sort this page.`);
  }

  const only = (domain || rule) && notice('', h('p', {}, 'Only of ', rule && ['rule ', h('code', {}, rule), ' of '], `domain ${domain ?? '*'}. `,
    h('a', { href: link('records') }, 'Show all')));
  const node = h('div', { class: 'view' },
    head('Runtime changes', 'What operators changed over the rules, and clients that were banned again and again. '
      + 'A rule is overridden and switched on Rules.',
      writeButton('Deny or allow…', () => listDialog(), 'primary'), writeButton('Emergency…', emergencyDialog)),
    viewer.node, trouble.node, only,
    h('div', { class: 'row end' }, h('div', { class: 'grow' }, field('Search', search)), field('Kind', kind)),
    panel('Changes', '', list.node), pager);
  show([]);
  const stop = all(() => clearTimeout(typing), viewer.stop, trouble.stop, watch('rules'),
    data.records.subscribe((answer) => answer && draw(answer)), () => showRecords());
  return { title: 'Runtime changes', node, stop };
}

const recordTable = () => table({
  caption: 'Runtime changes',
  keyOf: (record) => record.key,
  columns: [
    { id: 'kind', label: 'Kind', kind: 'tight', text: kindOf, sort: kindOf },
    { id: 'what', label: 'About', isHead: true, sort: subject,
      node: (get) => h('div', {}, h('span', { class: 'path' }, subject(get())),
        h('span', { class: 'below' }, [domainOf(get()), get().kind === 'automatic' && `rule ${get().rule}`].filter(Boolean).join(' · '))) },
    { id: 'effect', label: 'Effect', sort: effect, mark: (record) => `${record.revision}${record.problem}`,
      node: (get) => h('div', {}, h('span', {}, effect(get())), get().problem && h('span', { class: 'below bad' }, get().problem)) },
    { id: 'end', label: 'Ends', sort: (record) => record.expires_at_ms ?? Infinity, mark: (record) => `${record.revision}${end(record)}`,
      node: (get) => h('span', { title: get().expires_at_ms ? date(get().expires_at_ms) : null }, end(get())) },
    { id: 'why', label: 'Reason', sort: (record) => record.created_at_ms, mark: (record) => record.revision,
      node: (get) => h('div', {}, h('span', {}, get().reason || '–'),
        h('span', { class: 'below' }, `${get().author}, ${date(get().created_at_ms)}`)) },
    { id: 'do', label: 'Actions', isBare: true, isWhole: true, mark: (record) => record.mode, node: tools },
  ],
  order: { id: 'why', isDescending: true },
});

const EDITS = { override: (record) => overrideDialog(record, record), switch: (record) => switchDialog(record, record),
  list_entry: (record) => listDialog(record, record), emergency: beginDialog };

function tools(get) {
  const about = subject(get());
  const edit = () => (EDITS[kindOf(get())] ?? EDITS[get().kind])(get());
  return h('div', { class: 'tools' },
    get().kind !== 'automatic' ? writeButton('Edit…', edit, 'small', about)
      : get().mode === 'enforce' && writeButton('Lift and exempt', () => exempt(get()), 'small', about),
    writeButton('Remove…', () => removalDialog([get()], { title: `Remove the ${kindOf(get())}?`,
      about: 'The rules decide again, on every instance within 2 seconds.' }), 'small', about));
}

async function exempt({ key }) {
  try {
    await call('POST', `records/${key}/exempt`, { reason: 'lifted and exempt on the dashboard' });
    say('The client is exempt for 7 days.');
  } catch (error) {
    say(error.message, 'bad');
  }
  refresh('records', 'audit');
}

// The frame around every view: facts of the instance, the caller, and outages.

import { author, token } from './caller.js';
import { badge, button, field, notice } from './controls.js';
import { openDialog } from './dialog.js';
import { h, redraw, text } from './dom.js';
import { draft } from './draft.js';
import { ago, clock, count, plural } from './format.js';
import { data, isTokenRequired, outage, pollNow, refresh, trouble } from './poll.js';
import { total } from './record.js';
import { signOut } from './session.js';
import { themeButton } from './theme.js';
import { emergencyDialog } from './views/emergency_dialog.js';

const PHASES = { ready: 'ok', starting: 'warn', stopping: 'warn' };

/** Draws the frame and keeps it up to date. */
export function startFrame() {
  const facts = document.getElementById('facts');
  data.status.subscribe((status) => status && redraw(facts, markOf(status), () => factNodes(status)));
  setInterval(() => document.querySelectorAll('[data-since]').forEach(tick), 1000);
  const who = document.getElementById('who');
  const theme = themeButton();
  const identity = () => redraw(who, JSON.stringify([data.me.get(), isTokenRequired.get()]), () => identityNodes(theme));
  data.me.subscribe(identity);
  isTokenRequired.subscribe(identity);
  const banner = document.getElementById('banner');
  const update = () => {
    const [held, refused] = [outage.get(), trouble.me.get()];
    const emergencies = data.status.get()?.emergencies ?? [];
    redraw(banner, held ? `${held.since}${held.why}` : refused ?? emergencies.join('\n'), () => (held ? outageNotice(held)
      : refused ? refusalNotice(refused) : emergencies.length > 0 ? emergencyNotice(emergencies) : []));
  };
  outage.subscribe(update);
  data.status.subscribe(update);
  trouble.me.subscribe(update);
  setInterval(() => countdown(banner), 1000);
}

const fact = (name, ...value) => h('div', {}, h('dt', {}, name), h('dd', {}, value));

/** An elapsed time that is updated every second. */
const since = (at) => h('span', { class: 'muted number', data: { since: at } }, ago(at));
const tick = (node) => text(node, ago(Number(node.dataset.since)));

const markOf = ({ instance, phase, rules, store, rule_count }) => JSON.stringify([instance, phase, rules, rule_count, store]);

/** Sources of rules without versions. */
const SOURCES = { directory: 'from a directory', xds: 'from a control plane' };

function factNodes({ instance, phase, rules, rule_count, store }) {
  const version = rules.version === null ? SOURCES[rules.source] : `version ${rules.version}`;
  return [
    fact('Instance', h('span', { class: 'row' }, h('code', {}, instance), badge(phase, PHASES[phase] ?? 'warn'))),
    fact('Rules', h('span', { class: 'row' }, h('span', { class: 'strong' }, `${version}, ${plural(rule_count, 'rule', 'rules')}`),
      since(rules.since_ms), rules.problem && badge('newer rules not active', 'bad'),
      rules.control_plane?.problem && badge('control plane unreachable', 'warn'))),
    fact('Store', h('span', { class: 'row' }, h('span', { class: 'strong' }, store.kind === 'redis' ? 'Redis' : 'embedded'),
      store.kind === 'redis' && h('code', { class: 'muted' }, store.address), storeBadge(store))),
  ];
}

/** Health of the store, by its circuit breakers. */
function storeBadge(store) {
  const open = Number(store.breakers_open ?? 0);
  return open > 0 ? badge(`${plural(open, 'breaker', 'breakers')} open`, 'bad') : badge('healthy', 'ok');
}

function identityNodes(theme) {
  const me = data.me.get();
  if (isTokenRequired.get() || !me) return [h('div', { class: 'who-buttons' }, theme)];
  const leave = token.get() && button('Sign out', signOut, 'small');
  const name = !me.is_token_required && button('Your name…', nameDialog, 'small');
  return [h('p', {}, h('span', { class: 'strong' }, me.name), h('span', { class: 'muted' }, ` · ${me.role}`)),
    h('div', { class: 'who-buttons' }, theme, name, leave)];
}

function outageNotice(held) {
  const line = h('p', {}, h('span', { class: 'strong' }, `Unreachable since ${clock(held.since)}`), ` (${held.why}). `,
    'The page shows earlier data. ', h('span', { 'aria-hidden': 'true', data: { countdown: '' } }));
  const box = notice('bad', line, button('Retry now', pollNow, 'small'));
  box.classList.add('banner');
  return box;
}

/** Each instance decides by itself. */
function emergencyNotice(domains) {
  const which = domains.includes('*') ? 'every domain' : domains.join(', ');
  const line = h('p', {}, h('span', { class: 'strong' }, 'Emergency: '), `each instance decides ${which} by itself, without Redis.`);
  const box = notice('warn', line, button('Emergency…', emergencyDialog, 'small'));
  box.classList.add('banner');
  return box;
}

/** The instance refuses requests of this browser, for example by a host name without a token. */
function refusalNotice(why) {
  const box = notice('bad', h('p', {}, h('span', { class: 'strong' }, 'The instance refuses requests: '), why));
  box.classList.add('banner');
  return box;
}

function countdown(banner) {
  const place = banner.querySelector('[data-countdown]');
  const held = outage.get();
  if (place && held) text(place, `Retrying in ${Math.max(0, Math.ceil((held.again - Date.now()) / 1000))} s.`);
}

const put = (name, value) => text(document.querySelector(`[data-count="${name}"]`), value);

export function startNavCounts() {
  data.status.subscribe((status) => put('rules', status ? count(status.rule_count) : ''));
  // Kept while another part of the records is requested, but not for the next user.
  data.records.subscribe((answer) => (answer || !data.me.get())
    && put('records', answer && total(answer.counts) ? count(total(answer.counts)) : ''));
  data.bans.subscribe((answer) => put('bans', answer?.bans.length ? count(answer.bans.length) + (answer.next ? '+' : '') : ''));
  draft.changed.subscribe(() => put('draft', draft.isChanged() ? 'draft' : ''));
}

function nameDialog() {
  const name = h('input', { type: 'text', maxlength: 60, autocomplete: 'username', value: author.get() });
  openDialog({
    title: 'Your name',
    content: field('Name', name, 'The audit log records it with your changes. Without a token it cannot be verified.'),
    label: 'Save',
    submit: async () => {
      author.set(name.value.trim());
      await refresh('me');
      return true;
    },
  });
}

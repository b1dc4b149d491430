// What stands around every view: the instance's facts, who looks, and whether the instance answers.

import { badge, button, notice } from './controls.js';
import { h, redraw, text } from './dom.js';
import { ago, clock, plural } from './format.js';
import { askNow, away, data, isTokenWanted, trouble } from './poll.js';
import { signOut } from './session.js';
import { themeButton } from './theme.js';
import { token } from './token.js';
import { nameDialog } from './views/name_dialog.js';

const PHASES = { ready: 'ok', starting: 'warn', stopping: 'warn' };

/** Draws the frame and keeps it up to date. */
export function startFrame() {
  const facts = document.getElementById('facts');
  data.status.subscribe((status) => status && redraw(facts, markOf(status), () => tell(status)));
  setInterval(() => document.querySelectorAll('[data-since]').forEach(tick), 1000);
  const who = document.getElementById('who');
  const theme = themeButton();
  const identity = () => redraw(who, JSON.stringify([data.me.get(), isTokenWanted.get()]), () => tellWho(theme));
  data.me.subscribe(identity);
  isTokenWanted.subscribe(identity);
  const banner = document.getElementById('banner');
  const look = () => {
    const [held, refused] = [away.get(), trouble.me.get()];
    redraw(banner, held ? `${held.since}${held.why}` : refused ?? '', () => (held ? gone(held) : refused ? no(refused) : []));
  };
  away.subscribe(look);
  trouble.me.subscribe(look);
  setInterval(() => countdown(banner), 1000);
}

const fact = (name, ...value) => h('div', {}, h('dt', {}, name), h('dd', {}, value));

/** A time that counts up by itself. */
const since = (at) => h('span', { class: 'muted number', data: { since: at } }, ago(at));
const tick = (node) => text(node, ago(Number(node.dataset.since)));

const markOf = ({ instance, phase, rules, store, rule_count }) => JSON.stringify([instance, phase, rules, rule_count, store]);

/** Where rules without a version come from. */
const FROM = { directory: 'from a directory', xds: 'from a control plane' };

function tell({ instance, phase, rules, rule_count, store }) {
  const version = rules.version === null ? FROM[rules.source] : `version ${rules.version}`;
  return [
    fact('Instance', h('span', { class: 'row' }, h('code', {}, instance), badge(phase, PHASES[phase] ?? 'warn'))),
    fact('Rules', h('span', { class: 'row' }, h('span', { class: 'strong' }, `${version}, ${plural(rule_count, 'rule', 'rules')}`),
      since(rules.since_ms), rules.problem && badge('newer ones are not in force', 'bad'),
      rules.control_plane?.problem && badge('the control plane is away', 'warn'))),
    fact('Store', h('span', { class: 'row' }, h('span', { class: 'strong' }, store.kind === 'redis' ? 'Redis' : 'embedded'),
      store.kind === 'redis' && h('code', { class: 'muted' }, store.address), storeBadge(store))),
  ];
}

/** Whether the store works, as far as its breakers tell. */
function storeBadge(store) {
  const open = Number(store.breakers_open ?? 0);
  return open > 0 ? badge(`${plural(open, 'breaker', 'breakers')} open`, 'bad') : badge('healthy', 'ok');
}

function tellWho(theme) {
  const me = data.me.get();
  if (isTokenWanted.get() || !me) return [h('div', { class: 'who-buttons' }, theme)];
  const leave = token.get() && button('Sign out', signOut, 'small');
  const name = !me.is_token_required && button('Your name…', nameDialog, 'small');
  return [h('p', {}, h('span', { class: 'strong' }, me.name), h('span', { class: 'muted' }, ` · ${me.role}`)),
    h('div', { class: 'who-buttons' }, theme, name, leave)];
}

function gone(held) {
  const line = h('p', {}, h('span', { class: 'strong' }, `Not reachable since ${clock(held.since)}`), ` (${held.why}). `,
    'What is shown is from before. ', h('span', { 'aria-hidden': 'true', data: { countdown: '' } }));
  const box = notice('bad', line, button('Try now', askNow, 'small'));
  box.classList.add('banner');
  return box;
}

/** The instance answers, but not to this browser: as when the page is asked for by a name, without a token. */
function no(why) {
  const box = notice('bad', h('p', {}, h('span', { class: 'strong' }, 'The instance refuses to answer: '), why));
  box.classList.add('banner');
  return box;
}

function countdown(banner) {
  const place = banner.querySelector('[data-countdown]');
  const held = away.get();
  if (place && held) text(place, `Next try in ${Math.max(0, Math.ceil((held.again - Date.now()) / 1000))} s.`);
}

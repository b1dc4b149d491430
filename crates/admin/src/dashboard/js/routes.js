// Router: the fragment of the URL names the view.

import { isTokenRequired } from './poll.js';
import { audit } from './views/audit.js';
import { bans } from './views/bans.js';
import { candidates } from './views/candidates.js';
import { dryRun } from './views/dry_run.js';
import { editor } from './views/editor.js';
import { events } from './views/events.js';
import { overview } from './views/overview.js';
import { records } from './views/records.js';
import { regions } from './views/regions.js';
import { rules } from './views/rules.js';
import { signInForm } from './views/sign_in.js';
import { talkers } from './views/talkers.js';
import { versions } from './views/versions.js';

/** Each returns its title, its node and a function that stops it. */
const VIEWS = { overview, rules, talkers, records, bans, candidates, editor, versions, try: dryRun, regions, events, audit };

let stop = () => {};
let isFirst = true;

export function startRoutes() {
  addEventListener('hashchange', show);
  isTokenRequired.subscribe(show);
}

function show() {
  const [name, rest] = location.hash.replace(/^#\//, '').split('?');
  const view = Object.hasOwn(VIEWS, name) ? name : 'overview';
  const make = isTokenRequired.get() ? signInForm : VIEWS[view];
  stop();
  const main = document.getElementById('main');
  const made = make(new URLSearchParams(rest));
  main.replaceChildren(made.node);
  stop = made.stop;
  document.title = `${made.title} · tollgate`;
  for (const link of document.querySelectorAll('.nav a')) {
    if (link.getAttribute('href') === `#/${view}`) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  document.querySelector('.nav').hidden = isTokenRequired.get();
  if (!isFirst) settle(main, made);
  made.ready?.();
  isFirst = false;
}

function settle(main, made) {
  scrollTo(0, 0);
  if (!made.ready) main.querySelector('h1')?.focus({ preventScroll: true });
}

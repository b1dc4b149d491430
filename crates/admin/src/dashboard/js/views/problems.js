// Problems of a draft's files.

import { badge } from '../controls.js';
import { h, redraw } from '../dom.js';
import { plural } from '../format.js';

/** One line with the validation state. */
export function checkedLine() {
  const node = h('div', { role: 'status', 'aria-live': 'polite', class: 'row' });
  return { node, update: (result) => redraw(node, JSON.stringify([result.state, result.message, sum(result.answer)]), () => status(result)) };
}

const count = (problems, severity) => problems.filter((problem) => problem.severity === severity).length;

function sum(answer) {
  if (!answer) return null;
  const { is_valid, problems, domains, rules, reasons } = answer;
  return { is_valid, errors: count(problems, 'error'), warnings: count(problems, 'warning'), domains, rules, reasons };
}

function status({ state, answer, message }) {
  if (state === 'failed') return [badge('not checked', 'warn'), h('span', {}, message)];
  if (state === 'checking' || !answer) return [badge('checking'), h('span', { class: 'muted' }, 'Checking…')];
  const { is_valid, errors, warnings, domains, rules, reasons } = sum(answer);
  if (!is_valid) return [badge(plural(errors, 'problem', 'problems'), 'bad'), h('span', {}, 'Solve them to apply the files.')];
  const amount = `${plural(domains, 'domain', 'domains')}, ${plural(rules, 'rule', 'rules')}`;
  return [
    badge('valid', 'ok'), h('span', { class: 'muted number' }, amount),
    warnings > 0 && badge(plural(warnings, 'warning', 'warnings'), 'warn'),
    reasons.map((reason) => badge(`${reason.domain}: ${reason.message}`, 'warn')),
  ];
}

/** The problems, with links to their lines. */
export function problemList(open) {
  const node = h('ul', { class: 'problems', 'aria-label': 'Problems' });
  const update = (problems) => redraw(node, JSON.stringify(problems), () => problems.map((problem) => h('li', {},
    problem.severity === 'error' ? badge('error', 'bad') : badge('warning', 'warn'),
    h('div', {}, h('button', { type: 'button', class: 'quiet small', on: { click: () => open(problem) } }, problem.line > 0 ? `${problem.file}:${problem.line}` : problem.file),
      h('span', {}, ` ${problem.path ? `${problem.path}: ` : ''}${problem.message}`)))));
  return { node, update, focus: () => node.querySelector('button')?.focus() };
}

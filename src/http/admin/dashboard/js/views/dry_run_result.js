// Result of a dry run: the path through the rules, and the counter.

import { call } from '../api.js';
import { badge, field, notice, writeButton } from '../controls.js';
import { writeDescriptor } from '../descriptor.js';
import { openDialog } from '../dialog.js';
import { h, svg } from '../dom.js';
import { count, span } from '../format.js';
import { say } from '../messages.js';
import { link } from '../links.js';
import { refresh } from '../poll.js';

export function dryRunResult(answer, request) {
  const { is_over_limit: isOver, descriptors } = answer;
  const verdict = isOver === null || isOver === undefined ? badge('unknown', 'warn')
    : isOver ? badge('over limit: denied', 'bad') : badge('within limits: passes', 'ok');
  return h('div', { class: 'stack' }, h('p', { class: 'row' }, 'The request would be', verdict),
    answer.problem && notice('warn', h('p', {}, answer.problem)),
    descriptors.map((one) => descriptor(one, request)),
    h('details', {}, h('summary', {}, 'As text'), h('pre', { class: 'diff', tabindex: '0' }, answer.text)));
}

function descriptor(one, request) {
  return h('section', { class: 'stack' },
    h('h3', {}, h('code', {}, writeDescriptor(one.descriptor))),
    one.listed && listed(one.listed),
    h('ol', { class: 'walk' }, one.steps.map(step)),
    one.rule ? rule(one.rule, request) : h('p', {}, badge('no limit'), ' No rule matches.'),
    one.counter && counter(one, request));
}

function listed(entry) {
  const end = entry.list === 'deny' ? badge('on the deny list', 'bad') : badge('on the allow list', 'ok');
  return h('p', { class: 'row' }, end, h('span', {}, entry.reason), h('span', { class: 'muted' }, `by ${entry.author}`));
}

function step({ key, value, taken, passed_over: others, note }) {
  return h('li', { class: taken ? 'taken' : 'not-taken' },
    h('div', {}, h('code', { class: 'strong' }, `${key}=${value}`)),
    h('div', { class: 'small' }, taken ? `taken: ${taken}` : note ?? 'nothing matches'),
    others.map((other) => h('div', { class: 'small muted' }, `passed over: ${other}`)));
}

function rule({ rule, name, file, line, limit, switch: mode, replaced_by: other }, { domain, isDraft }) {
  const at = isDraft ? h('span', {}, `${file}:${line}`)
    : h('a', { href: link('editor', { file, line, domain, rule }) }, `${file}:${line}`);
  return h('p', { class: 'row' }, h('code', { class: 'strong' }, rule), name && h('span', { class: 'muted' }, name),
    h('span', {}, limit), mode && badge(`switched ${mode}`, 'warn'),
    other && h('span', { class: 'muted' }, `replaced by ${other}`), at);
}

function counter(one, request) {
  const { used, reserved = 0, remaining, would_pass: passes, reset_after_ms: reset, cell, slot } = one.counter;
  if (used === null) return h('p', {}, badge('unknown', 'warn'), ' The store does not respond.');
  const total = used + reserved + remaining;
  const part = total === 0 ? 1 : (used + reserved) / total;
  return h('div', { class: 'stack' },
    h('p', { class: 'row' }, outcome(passes),
      h('span', { class: 'number' }, [`${count(used)} used`, reserved > 0 && `${count(reserved)} reserved`, `${count(remaining)} left`]
        .filter(Boolean).join(', ')),
      reset > 0 && h('span', { class: 'muted' }, `resets in ${span(reset)}`)),
    h('div', { class: part >= 1 ? 'meter full' : 'meter', role: 'img', 'aria-label': `${Math.round(part * 100)} % used` },
      svg('svg', { preserveAspectRatio: 'none', viewBox: '0 0 100 1' }, svg('rect', { width: Math.min(1, part) * 100, height: 1 }))),
    h('p', { class: 'hint' }, 'counter ', h('code', {}, cell), slot === null || slot === undefined ? null : `, slot ${slot}`),
    !request.isDraft && h('div', { class: 'row' }, writeButton('Reset counter…', () => resetDialog(one, request), 'small')));
}

/** The outcome is unknown with a minimum interval, as a dry run does not charge. */
function outcome(passes) {
  if (passes === null) return badge('unknown', 'warn');
  return passes ? badge('passes', 'ok') : badge('over limit', 'bad');
}

function resetDialog(one, { domain, again }) {
  const reason = h('input', { type: 'text', maxlength: 500 });
  openDialog({
    title: 'Reset this counter?',
    content: [h('p', {}, h('code', {}, writeDescriptor(one.descriptor)), ' is reset to unused.'), field('Reason', reason)],
    label: 'Reset',
    danger: true,
    submit: async () => {
      await call('POST', 'counters/reset', { domain, descriptor: one.descriptor, reason: reason.value.trim() || undefined });
      say('Counter reset.');
      refresh('audit');
      again();
      return true;
    },
  });
}

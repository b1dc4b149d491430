// Addresses of views: what stands behind the `#`.

/** Where a view is, with what it is to begin with. */
export function place(view, parameters = {}) {
  const rest = new URLSearchParams(parameters).toString();
  return rest ? `#/${view}?${rest}` : `#/${view}`;
}

export const go = (view, parameters) => (location.hash = place(view, parameters));

// Addresses of views: the fragment of the URL.

/** Link to a view with its initial parameters. */
export function link(view, parameters = {}) {
  const rest = new URLSearchParams(parameters).toString();
  return rest ? `#/${view}?${rest}` : `#/${view}`;
}

export const go = (view, parameters) => (location.hash = link(view, parameters));

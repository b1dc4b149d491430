// The token that calls show. It lives as long as the tab does, and nowhere else.

const NAME = 'tollgate.token';

export const token = {
  get: () => sessionStorage.getItem(NAME),
  set: (value) => sessionStorage.setItem(NAME, value),
  forget: () => sessionStorage.removeItem(NAME),
};

// Sets the theme before the first paint, so that the page does not flash. Not a module, as modules run later.
{
  const theme = localStorage.getItem('tollgate.theme');
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
}

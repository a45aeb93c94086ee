// Before the page is drawn: the theme that its reader chose. A script of its own, so that nothing flashes.
try {
  const theme = localStorage.getItem("choral.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // A browser that keeps nothing: the system's theme.
}

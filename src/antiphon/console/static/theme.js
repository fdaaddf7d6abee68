// Applies the chosen theme before the page is drawn. Without a choice, the system's setting counts.

const theme = localStorage.getItem("antiphon-theme");
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;

// Says why a token was refused: the server comes back to this page with the reason.

for (const reason of ["refused", "long"]) {
  const message = /** @type {HTMLElement} */ (document.getElementById(reason));
  message.hidden = !new URLSearchParams(location.search).has(reason);
  if (!message.hidden) document.getElementById("token")?.setAttribute("aria-invalid", "true");
}

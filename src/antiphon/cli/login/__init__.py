"""`antiphon login`, `logout` and `logins`: the logins of the user at servers that use OAuth."""

"""`antiphon store`: maintain the store of a server, such as making a backup of it."""

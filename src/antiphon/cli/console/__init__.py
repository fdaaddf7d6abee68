"""`antiphon console`: serves the console for stores and servers, and opens it in a browser."""

"""What the server-side tests share: real servers, raw HTTP, and one speaker for each dialect."""

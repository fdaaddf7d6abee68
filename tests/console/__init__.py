"""Tests of the console: its API over real HTTP, and its pages in a real browser."""

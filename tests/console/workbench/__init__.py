"""The workbench of the console."""

"""Where tasks are kept: one append-only log each, behind one contract."""

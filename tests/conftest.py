"""What every test may use."""

from __future__ import annotations

import hypothesis

hypothesis.settings.register_profile("antiphon", deadline=None, derandomize=True, print_blob=False)
hypothesis.settings.load_profile("antiphon")

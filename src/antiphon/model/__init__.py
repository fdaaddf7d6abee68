"""Values that know no protocol version: what is said, independent of how it is written down."""

"""The contract suite that every store must pass, and the tests of each store beyond the contract."""

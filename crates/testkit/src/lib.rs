//! Test support: the oracle, op cases, tolerances, tiny models, a fake backend.

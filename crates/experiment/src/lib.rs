//! The runner of experiments: one TOML plan per claim

//! Estimates of paths, and the one table that holds them (pure)

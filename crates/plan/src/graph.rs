//! The overlay graph that plans are made on.

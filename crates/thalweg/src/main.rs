//! Moves bulk data between hosts faster than the default path does.
fn main() {}

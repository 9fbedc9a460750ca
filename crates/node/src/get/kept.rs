//! Connections that one download leaves for the next ones of the same call, by path.

/// Idle connections by route and origin; at most a few each.
///
/// No pool in between: who takes one names the route, and gets one of that route or none.
#[derive(Debug, Default)]
pub struct Kept {}

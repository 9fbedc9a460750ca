//! What the steering goes by.

use std::time::Duration;

/// Limits and times of the steering.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The most ways of a source that are open at a time, at least 1. Each is a connection of its
    /// own on shared bottlenecks: more of them take more from others' traffic. Of more the worst is
    /// closed.
    pub ways: usize,
    /// The most intermediates of a way.
    pub intermediates: usize,
    /// How often it is told what passed.
    pub interval: Duration,
    /// Rates that are so far from what was planned, as a fraction, are another network.
    pub drift: f64,
    /// So many intervals in a row make rates believable.
    pub samples: u32,
    /// A way that brought nothing is not tried again for so many intervals; each further time
    /// twice as long.
    pub pause: u32,
    /// On drift the rest is planned anew; else ways are only tried one by one.
    pub replan: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ways: 4,
            intermediates: 2,
            interval: Duration::from_secs(2),
            drift: 0.25,
            samples: 3,
            pause: 15,
            replan: true,
        }
    }
}

//! Bonds: streams over several connections at once (DBAS, packet-oriented mode).
//!
//! Begun: the engine works over any connections; nothing dials or serves bonds yet.

mod engine;
mod flow;
mod gauge;
mod link;
mod outbox;
mod state;
mod stream;

pub use engine::{Ended, Engine};
pub use flow::Broken;
pub use link::LinkIo;
pub use state::Settings;
pub use stream::BondStream;

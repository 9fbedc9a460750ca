//! Bonds: streams over several connections at once (DBAS, packet-oriented mode).
//!
//! A [`Bond`] is dialled to a member by each interface; [`Bonds`] is the daemon's end. Begun: no
//! command uses them yet.

mod dial;
mod engine;
mod flow;
mod gauge;
mod greet;
mod link;
mod outbox;
mod serve;
mod state;
mod stream;

pub use dial::{Bond, Interfaces};
pub use engine::{Ended, Engine};
pub use flow::Broken;
pub use link::LinkIo;
pub use serve::Bonds;
pub use state::Settings;
pub use stream::BondStream;

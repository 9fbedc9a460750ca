//! Data legs and control channels: messages and symbols on a channel to another member.

pub mod child;
mod desk;
mod io;
mod news;
pub mod parent;
mod seat;

pub use desk::Desk;
pub use io::{Hear, Leg, Say, accept, invalid, open, opening, refuse};
use news::News;
pub use seat::{Audience, Seat};

use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_wire::cast::Want;

/// Who dials a data leg of this kind: over all interfaces where symbols are asked for, by one where they stream.
///
/// A ring's child takes what it can when it can, and what it cannot it misses; that is how a ring bounds what
/// a node holds, and how it notices who is slow. A bond's stream takes megabytes ahead of the child on each
/// side, so that the ring would count as taken what waits there, and hold it besides. What is asked for is
/// bounded by who asks.
pub fn carried_for(want: Want, reach: MemberDialer) -> MemberDialer {
    match want {
        Want::Pull => reach,
        Want::Stream => reach.uncarried(),
    }
}

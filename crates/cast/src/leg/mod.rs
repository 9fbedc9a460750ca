//! Data legs and control channels: messages and symbols on a channel to another member.

mod announcements;
mod announcer;
pub mod child;
mod io;
pub mod parent;
mod scheduler;

pub use announcements::{Announcements, ChildAnnouncements};
use announcer::Announcer;
pub use io::{Leg, LegReader, LegWriter, accept, invalid, open, read_opening, refuse};
pub use scheduler::SymbolScheduler;

use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_wire::cast::ServiceMode;

/// Prepares the dialer for a data leg: pull legs may use all interfaces, stream legs use a single connection.
///
/// A stream child takes symbols when it can and misses the others; that bounds what a node holds and shows which
/// children are slow. A bond buffers megabytes ahead of the child on each side, so the ring would count buffered
/// symbols as taken and hold them as well. On a pull leg, the child's requests bound what is sent.
pub fn dialer_for(want: ServiceMode, dialer: MemberDialer) -> MemberDialer {
    match want {
        ServiceMode::Pull => dialer,
        ServiceMode::Stream => dialer.without_carrier(),
    }
}

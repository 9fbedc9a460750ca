//! The capabilities of a cast's hosts, as input of the plan.

use super::rings::Forwarding;
use thalweg_paths::estimates::Estimates;
use thalweg_plan::{
    Graph,
    tree::{Access, Host, Role, Storage},
};
use thalweg_units::ByteSize;
use thalweg_wire::mesh::Name;

/// The hosts by their index in `names`: the source, then the `receivers`, then relays.
///
/// An access has the rate that the user gave, or else at least the highest rate measured on one of its legs. Receivers
/// and relays below [`Forwarding::leaf_below`] forward nothing.
pub fn hosts(
    names: &[&Name],
    receivers: usize,
    graph: &Graph,
    estimates: &Estimates,
    forwarding: &Forwarding,
) -> Vec<Host> {
    let ring = Storage::Ring(ByteSize::from_bytes(forwarding.ring_bytes));
    let is_relay = |at: usize| at > receivers;
    let host = |(at, name): (usize, &&Name)| {
        let role = match at {
            0 => Role::Absent,
            at if is_relay(at) => Role::Relay,
            _ => Role::Receiver,
        };
        let keeps = if forwarding.by_rings || is_relay(at) { ring } else { Storage::Store };
        let access = Access::estimate(graph, at, estimates.access(name), Access::default());
        let host = Host { role, keeps, access, ..Host::RECEIVER };
        match forwarding.leaf_below {
            Some(least) if at > 0 => host.leaf_below(least),
            _ => host,
        }
    };
    names.iter().enumerate().map(host).collect()
}

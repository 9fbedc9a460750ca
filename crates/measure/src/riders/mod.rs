//! Riders (MGRP §2.2): packets of applications that travel in the padding of probes.
//!
//! The sender [holds](Hold) packets for a few milliseconds and cuts them to the padding of probes; a packet whose time
//! is up is sent by itself. The receiver [reassembles](Reassembly) packets and delivers each once. A [`Regulator`] says
//! which probes of a train may carry riders. The module is pure: time is an argument.
//!
//! Differences from the paper: several riders share a probe; packets wait only if a [`Seat`] leaves in time, and only
//! as many as the seats take; and unused padding may repeat what the train carried before (§4.2.2 has the idea, but
//! does not build it).

mod flow;
mod hold;
mod leg_rule;
mod packet;
mod reassembly;
mod regulator;
mod seats;

pub use flow::{FlowState, FlowWatch};
pub use hold::{Hold, HoldSettings};
pub use leg_rule::LegRule;
pub use packet::{PacketHead, Selection};
pub use reassembly::{FragmentError, Reassembly, ReassemblyLimits};
pub use regulator::{Regulator, Ride};
pub use seats::{Seat, TrainId, rides, seats};

use seats::Schedule;

/// Bytes of a probe's padding that a fragment uses besides its own bytes.
pub const FRAGMENT_HEADER: usize = 10;

/// The longest packet that can ride: the length field of an IP packet has 16 bits.
pub const LONGEST_RIDER: usize = 65_535;

/// A piece of a rider, or a whole rider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The number of the rider; it increases by one for each rider and wraps.
    pub rider: u32,
    /// The length of the rider.
    pub total: u16,
    /// The offset of the piece in the rider.
    pub offset: u16,
    /// The bytes of the piece, at least one.
    pub bytes: Vec<u8>,
}

impl Fragment {
    /// Bytes of padding that it uses.
    pub fn cost(&self) -> usize {
        FRAGMENT_HEADER + self.bytes.len()
    }
}

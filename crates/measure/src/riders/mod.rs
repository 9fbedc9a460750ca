//! Riders (MGRP §2.2): packets of applications that travel in the padding of probes.
//!
//! At the sender packets are [held](Hold) for a few milliseconds, cut to the padding that probes have, and go by
//! themselves when their time is over; at the receiver they are [put together](Reassembly) again and delivered
//! once. A [`Regulator`] says which probes of a train may carry any. All of it is pure: time is an argument.
//!
//! Where this differs from the paper: several riders share a probe; packets wait only where a [`Seat`] leaves in time, and
//! no more of them than seats take; and what is left of a probe's padding may carry
//! again what the train carried before (§4.2.2 has the idea, and did not build it).

mod flow;
mod hold;
mod legs;
mod packet;
mod reassembly;
mod regulator;
mod seats;

pub use flow::{FlowState, FlowWatch};
pub use hold::{Hold, HoldSettings};
pub use legs::LegRule;
pub use packet::{PacketHead, Selection};
pub use reassembly::{Reassembly, ReassemblyLimits, Refused};
pub use regulator::{Regulator, Ride};
pub use seats::{Seat, Trip, rides, seats};

use seats::Schedule;

/// What a fragment costs of a probe's padding besides its bytes.
pub const FRAGMENT_HEADER: usize = 10;

/// The longest packet that rides: an IP packet's length has 16 bits.
pub const LONGEST_RIDER: usize = 65_535;

/// A piece of a rider, or all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The rider's number, one more for each; after the last it begins anew.
    pub rider: u32,
    /// The rider's length.
    pub total: u16,
    /// Where in it this begins.
    pub offset: u16,
    /// Its bytes, at least one.
    pub bytes: Vec<u8>,
}

impl Fragment {
    /// What it takes of a padding.
    pub fn cost(&self) -> usize {
        FRAGMENT_HEADER + self.bytes.len()
    }
}

//! What is known of a bond's links, for who shows it.

use serde::Serialize;
use std::time::Duration;
use thalweg_units::Rate;

/// How a link does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkLife {
    /// It answers, or nothing is owed.
    Alive,
    /// An answer is late: it is asked.
    Late,
    /// It does not answer; what it carried goes by others. It comes back by itself.
    Silent,
}

/// One link as this end sees it: its estimates are of the way from here.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkStatus {
    /// Its number in the bond.
    pub link: u32,
    /// The interface that it leaves by, where this end dialled.
    pub interface: Option<String>,
    /// The relays that it goes by, where this end dialled and there are some.
    pub via: Option<String>,
    /// How it does.
    pub life: LinkLife,
    /// What it delivers: smoothed over the kernel's samples (gain 1/8), of which those that were
    /// limited by what we sent count as lower bounds; through relays what the far end confirms, the
    /// best of late. Zero: not known yet.
    pub rate: Rate,
    /// The kernel's smoothed round trip, with that beyond the first relay; zero: not known yet.
    #[serde(with = "thalweg_units::serde_duration")]
    pub rtt: Duration,
    /// Of the bytes that TCP sent, the share that it sent again, from 0 to 1.
    pub loss: f64,
    /// Bytes of chunks that it was given, second copies among them.
    pub sent: u64,
    /// Bytes of chunks that came by it.
    pub received: u64,
    /// Whether it may carry second copies.
    pub may_duplicate: bool,
}

//! The status of a bond's links, for display.

use serde::Serialize;
use std::time::Duration;
use thalweg_units::Rate;

/// Whether a link answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkLife {
    /// It answers, or no answer is due.
    Alive,
    /// An answer is late: the link is asked whether it is alive.
    Late,
    /// It does not answer, and other links carry its chunks. It is used again once it answers.
    Silent,
}

/// One link as this end sees it: the estimates are of the direction from here.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkStatus {
    /// Its number in the bond.
    pub link: u32,
    /// The interface that it leaves by, if this end dialled.
    pub interface: Option<String>,
    /// The relays on its route, if this end dialled and there are some.
    pub via: Option<String>,
    /// Whether it answers.
    pub life: LinkLife,
    /// The delivery rate, smoothed over the kernel's samples (gain 1/8); samples that were limited by our sending count
    /// as lower bounds. Through relays it is the best recent rate that the far end confirmed. Zero: not known yet.
    pub rate: Rate,
    /// The kernel's smoothed round trip, plus that beyond the first relay; zero: not known yet.
    #[serde(with = "thalweg_units::serde_duration")]
    pub rtt: Duration,
    /// Of the bytes that TCP sent, the share that it sent again, from 0 to 1.
    pub loss: f64,
    /// Bytes of chunks given to it, including second copies.
    pub sent: u64,
    /// Bytes of chunks that arrived by it.
    pub received: u64,
    /// Whether it may carry second copies.
    pub may_duplicate: bool,
}

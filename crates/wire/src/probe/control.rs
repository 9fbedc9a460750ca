//! What passes on a channel `thalweg/probe/1`: who sends which train, and what came of it.
//!
//! ```text
//! client →  Open                      first of all
//! client ←  Opened                    the session, the port for its datagrams, what the host can do
//! client →  Arrivals | Send …         one at a time; each is answered
//! client →  Carry                     instead of Open, or later: riders as well
//! ```
//!
//! Datagrams of a session are sealed under keys that both ends derive from the channel, one for each direction. Messages
//! are `length:u32 ‖ postcard`, big-endian.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The longest message: a train of 4,096 probes.
pub const MAX_MESSAGE: usize = 96 << 10;

/// The exporter's label (RFC 8446 §7.5); the context is the session's number and the direction's letter.
pub const LABEL: &[u8] = b"EXPORTER-thalweg probe 1";

/// A train's number that is no train's: by such datagrams a client shows where it is, and that datagrams pass.
pub const NO_TRAIN: u32 = u32::MAX;

/// What the client asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// A session.
    Open,
    /// What came of a train of the client's.
    Arrivals {
        /// The train.
        train: u32,
        /// Its probes.
        probes: u16,
        /// How long to wait for those that are still under way, ms.
        wait: u16,
    },
    /// A train to the client.
    Send {
        /// Its number.
        train: u32,
        /// Its probes.
        probes: Vec<Planned>,
        /// Whether it goes although this host is too busy to time it; the client then doubts what it finds.
        accepts_busy: bool,
    },
    /// That riders go in both directions: in the session, or in a new one that is for riders alone, without
    /// the calibration that [`Ask::Open`] has.
    Carry {
        /// This life of the client's process: its riders are counted anew in the next.
        epoch: u64,
    },
}

/// A probe that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// Bytes of its datagram, all included.
    pub size: u16,
    /// Of these the tool's.
    pub header: u16,
    /// From the one before it, ns.
    pub gap: u64,
    /// Whether it may carry riders.
    pub may_carry: bool,
}

/// What a node can do, as its calibration found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Can {
    /// What sending and receiving a probe take, ns.
    pub latency: [u32; 2],
    /// How far gaps are off: the median, and 99 of 100 are nearer, ns.
    pub gap_error: [u32; 2],
    /// The highest rate that it sends truthfully, bit/s.
    pub honest: u64,
    /// Whether it was calm enough to be believed.
    pub is_valid: bool,
}

/// What the node answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tell {
    /// To [`Ask::Open`].
    Opened {
        /// Its number.
        session: u32,
        /// The port that takes its datagrams, at the address that the channel leads to.
        port: u16,
        /// What this node can do.
        can: Can,
    },
    /// To [`Ask::Arrivals`]: when each came, ns of the wall clock there.
    Arrivals {
        /// By their places.
        arrived: Vec<Option<u64>>,
        /// Datagrams of anybody's that its socket dropped since the last answer.
        dropped: u32,
    },
    /// To [`Ask::Send`]: when each left, ns of a clock there.
    Sent(Vec<Option<u64>>),
    /// To [`Ask::Carry`].
    Carrying {
        /// The session's number.
        session: u32,
        /// The port that takes its datagrams.
        port: u16,
        /// This life of the node's process.
        epoch: u64,
    },
    /// To anything.
    Refused(Refusal),
}

/// Why a node does not.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Refusal {
    /// It sends a train for somebody else, or has no place for another session.
    #[error("it sends a train for somebody else, or has as many sessions as it takes; try again")]
    Busy,
    /// Its bytes for measurements are used up.
    #[error("its bytes for measurements are used up for today")]
    Budget,
    /// It cannot send this train truthfully, or none at all; says why.
    #[error("it does not send this train: {0}")]
    Train(String),
    /// It has no session open on this channel.
    #[error("it has no session here; open one")]
    Session,
    /// Nobody there takes riders, or not from this key.
    #[error(
        "it carries no packets of members: `carrier.enabled` is not set there, or it knows this key as no node's"
    )]
    Carrier,
    /// Its carrier has no network device any more, or never got one.
    #[error(
        "it carries no packets of members: its device is gone; `thalweg carrier status` tells why there"
    )]
    Device,
}

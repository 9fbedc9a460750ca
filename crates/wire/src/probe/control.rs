//! The protocol of the channel `thalweg/probe/1`, which controls the sending of probe trains and reports their arrival.
//!
//! ```text
//! client →  Open                      the first request
//! client ←  Opened                    the session, the port for its datagrams, the node's capabilities
//! client →  Arrivals | Send …         one at a time; each has a reply
//! client →  Carry                     instead of Open, or later: requests riders
//! client →  Take, Give …              instead of Open: bytes over this channel, several at a time
//! ```
//!
//! Datagrams of a session are sealed under keys that both ends derive from the channel, one for each direction.
//! Messages are `length:u32 ‖ postcard`, big-endian.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The longest message, bytes: a train of 4,096 probes.
pub const MAX_MESSAGE: usize = 96 << 10;

/// The most bytes of one block that is moved to find what TCP moves.
pub const MAX_BLOCK: usize = 64 << 10;

/// The label of the exporter (RFC 8446 §7.5). The context is the session's number and the direction's letter.
pub const LABEL: &[u8] = b"EXPORTER-thalweg probe 1";

/// A number that no train has. With datagrams of this number a client shows its address, and that datagrams pass.
pub const NO_TRAIN: u32 = u32::MAX;

/// A request of the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProbeRequest {
    /// Opens a session. Reply: [`NodeReply::Opened`].
    Open,
    /// Requests the arrival times of a train sent by the client. Reply: [`NodeReply::Arrivals`].
    Arrivals {
        /// The number of the train.
        train: u32,
        /// The number of its probes.
        probes: u16,
        /// How long to wait for probes still in flight, ms.
        wait: u16,
    },
    /// Requests a train to the client. Reply: [`NodeReply::Sent`].
    Send {
        /// The number of the train.
        train: u32,
        /// The probes to send.
        probes: Vec<PlannedProbe>,
        /// Whether to send the train even if the node is too busy to time it. The client then treats the result as
        /// doubtful.
        accepts_busy: bool,
    },
    /// Requests that riders are sent in both directions: in this session, or else in a new one for riders only, without
    /// the calibration of [`ProbeRequest::Open`]. Reply: [`NodeReply::Carrying`].
    Carry {
        /// The run of the client's process. The numbers of riders restart with each run.
        epoch: u64,
    },
    /// As many bytes without a meaning follow, at most [`MAX_BLOCK`], to find what TCP moves. Needs no session. Reply:
    /// [`NodeReply::Took`].
    Take { bytes: u32 },
    /// Requests bytes without a meaning, at most [`MAX_BLOCK`]. Needs no session. Reply: [`NodeReply::Given`].
    Give { bytes: u32 },
}

/// A probe to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedProbe {
    /// The size of the whole datagram, bytes.
    pub size: u16,
    /// The size of the tool's header in it, bytes.
    pub header: u16,
    /// The time since the previous probe, ns.
    pub gap: u64,
    /// Whether it may carry riders.
    pub may_carry: bool,
}

/// The capabilities of a node, from its calibration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// The latencies of sending and receiving a probe, ns.
    pub latency: [u32; 2],
    /// The errors of gaps between probes: the median and the 99th percentile, ns.
    pub gap_error: [u32; 2],
    /// The highest rate that the node sends with correct gaps, bit/s.
    pub honest: u64,
    /// Whether the host was calm enough for a valid calibration.
    pub is_valid: bool,
}

/// A reply of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeReply {
    /// The reply to [`ProbeRequest::Open`].
    Opened {
        session: u32,
        /// The port for the session's datagrams, at the address of the channel.
        port: u16,
        /// The capabilities of this node.
        can: Capabilities,
    },
    /// The reply to [`ProbeRequest::Arrivals`].
    Arrivals {
        /// The arrival times by position in the train, ns of the node's wall clock; `None`: lost.
        arrived: Vec<Option<u64>>,
        /// Datagrams of any sender that the node's socket dropped since the last reply.
        dropped: u32,
    },
    /// The reply to [`ProbeRequest::Send`]: the sending times of the probes, ns of a clock of the node; `None`: not
    /// sent.
    Sent(Vec<Option<u64>>),
    /// The reply to [`ProbeRequest::Carry`].
    Carrying {
        session: u32,
        /// The port for the session's datagrams.
        port: u16,
        /// The run of the node's process.
        epoch: u64,
    },
    /// The reply to any refused request.
    Refused(Refusal),
    /// The reply to [`ProbeRequest::Take`]: the number of its bytes.
    Took(u32),
    /// The reply to [`ProbeRequest::Give`]: as many bytes follow.
    Given(u32),
}

/// Why a node refuses a request.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The node is sending another train, or has the maximum number of sessions.
    #[error("it is sending a train for another member, or has no free session; try again")]
    Busy,
    /// The node's daily bytes for measurements are used up.
    #[error("its bytes for measurements are used up for today")]
    Budget,
    /// The node cannot send this train with correct gaps, or any train; contains the reason.
    #[error("it cannot send this train: {0}")]
    Train(String),
    /// No session is open on this channel.
    #[error("no session is open on this channel; open one first")]
    Session,
    /// The node does not accept riders, or not from this key.
    #[error(
        "it carries no packets of members: `carrier.enabled` is not set there, or it does not know \
         this key as a node's"
    )]
    Carrier,
    /// The node's carrier has lost its network device, or never had one.
    #[error(
        "it carries no packets of members: its device is gone; `thalweg carrier status` on that \
         node shows why"
    )]
    Device,
}

//! What one TCP connection attains between two bistros: the capacities of G_H (§VI).
//!
//! "… by measuring the TCP throughput between each pair of bistros separately while sending a 5 MByte file
//! between these bistros. We repeat the measurement 10 times and take the average."

mod measure;
mod serve;

pub use measure::{Args as MeasureArgs, run as measure};
pub use serve::{Args as ServeArgs, run as serve};

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Where a bistro takes orders, and where it takes the data of others.
const ORDERS: u16 = 9200;
const DATA: u16 = 9201;

/// What a bistro is to do.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Order {
    to: SocketAddr,
    /// Of each transfer.
    bytes: u64,
    times: u32,
    /// What is not over by then counts as far as it came, s.
    longest: f64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Outcome {
    /// Bytes that arrived.
    bytes: u64,
    /// From the first connection's start to the last one's end.
    seconds: f64,
}

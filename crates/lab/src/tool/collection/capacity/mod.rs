//! The rate of one TCP connection between two bistros: the capacities of G_H (§VI).
//!
//! "… by measuring the TCP throughput between each pair of bistros separately while sending a 5 MByte file
//! between these bistros. We repeat the measurement 10 times and take the average."

mod measure;
mod serve;

pub use measure::{Args as MeasureArgs, run as measure};
pub use serve::{Args as ServeArgs, run as serve};

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// The port at which a bistro accepts orders.
const ORDERS: u16 = 9200;
/// The port at which a bistro accepts the data of others.
const DATA: u16 = 9201;

/// A measurement that a bistro is asked to make.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct MeasurementOrder {
    to: SocketAddr,
    /// Bytes of each transfer.
    bytes: u64,
    times: u32,
    /// The time limit of the measurement, s; a transfer that is not complete by then counts with the bytes that
    /// arrived.
    longest: f64,
}

/// The result of a measurement.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct MeasurementResult {
    /// Bytes that arrived.
    bytes: u64,
    /// The time from the start of the first connection to the end of the last one.
    seconds: f64,
}

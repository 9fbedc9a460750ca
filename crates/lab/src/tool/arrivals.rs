//! The datagrams that a sink receives, with timestamps.

use super::{
    net, sys,
    wire::{DatagramHeader, DatagramPlan},
};
use std::{io, net::UdpSocket};

/// One received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramArrival {
    /// The number of its train.
    pub train: u32,
    /// Its number within the train.
    pub seq: u32,
    /// The time at which the source sent it, `CLOCK_REALTIME`, ns.
    pub sent_ns: u64,
    /// The time at which this kernel received it, `CLOCK_REALTIME`, ns.
    pub received_ns: u64,
}

/// The received datagrams of one measurement, in the order of arrival.
#[derive(Debug)]
pub struct DatagramArrivals {
    /// The datagrams.
    pub list: Vec<DatagramArrival>,
    /// Datagrams that this host's socket dropped, because its buffer was full or a checksum was wrong. A full buffer is
    /// not a loss of the path and invalidates the measurement.
    pub host_drops: u32,
    /// The socket's drop counter when the measurement began.
    drops_before: Option<u32>,
    /// The most datagrams that are kept: more duplicates are a fault, not data.
    limit: usize,
}

impl DatagramArrivals {
    /// Creates an empty list for the datagrams of `plan`. Duplicates may double their number.
    pub fn expecting(plan: &DatagramPlan) -> Self {
        let limit = (plan.trains as usize).saturating_mul(plan.packets as usize).saturating_mul(2);
        Self { list: Vec::new(), host_drops: 0, drops_before: None, limit }
    }

    /// Receives all waiting datagrams. Returns whether any belonged to `session`.
    ///
    /// # Errors
    /// The error of `recvmsg`.
    pub fn drain(&mut self, socket: &UdpSocket, session: u64) -> io::Result<bool> {
        let (mut buffer, mut any) = ([0u8; DatagramHeader::LEN], false);
        loop {
            match sys::recv_stamped(socket, &mut buffer) {
                Ok(stamped) => any |= self.add_datagram(&stamped, &buffer, session),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(any),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn add_datagram(
        &mut self,
        stamped: &sys::StampedDatagram,
        buffer: &[u8],
        session: u64,
    ) -> bool {
        let drops = stamped.drops.unwrap_or(0);
        let before = *self.drops_before.get_or_insert(drops);
        self.host_drops = drops.wrapping_sub(before);
        let Some(h) = DatagramHeader::get(&buffer[..stamped.len]).filter(|h| h.session == session)
        else {
            return false;
        };
        if self.list.len() < self.limit {
            let received_ns = stamped.received_ns.unwrap_or_else(net::realtime_ns);
            let DatagramHeader { train, seq, sent_ns, .. } = h;
            self.list.push(DatagramArrival { train, seq, sent_ns, received_ns });
        }
        true
    }
}

//! The kernel's counters (TCP_INFO) of a link's connection.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::SockRef;
use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};
use thalweg_bond::{Link, LinkId};
use thalweg_net::{TcpInfo, retransmits_within};
use thalweg_units::{Rate, Time};
use tokio::{io::Interest, net::TcpStream};

/// How long a reading is reused.
const FRESH: Duration = Duration::from_micros(500);

/// Bytes that the kernel may hold unsent, at least: a chunk's head start over an interrupt.
const LEAST_UNSENT: u32 = 16 << 10;

/// Bytes that the kernel may hold unsent, at most.
const MOST_UNSENT: u32 = 512 << 10;

/// The unsent bytes cover this time at the link's rate, so the link of a chunk is chosen at most this long before the
/// chunk is sent.
const AHEAD: Duration = Duration::from_millis(4);

/// Upper bound of TCP's retransmission timeout, so that a link serves again soon after an outage. TCP alone doubles the
/// timeout up to two minutes, and by then the other links may be away. This is the shortest bound that the kernel
/// takes.
const LONGEST_RETRANSMISSION: Duration = Duration::from_secs(1);

/// The weight of a new rate sample: 1/8.
const GAIN: f64 = 0.125;

/// Watches one connection, by a duplicate descriptor that is never read or written.
#[derive(Debug)]
pub struct Gauge {
    socket: TcpStream,
}

/// The latest counters of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    info: TcpInfo,
    at: Option<Time>,
    /// Bits per second; 0: not known.
    rate: f64,
    unsent_limit: u32,
    /// Bytes that were acknowledged at the last call of [`Self::drains`].
    drained: u64,
}

impl Gauge {
    /// Takes a duplicate of the connection's descriptor.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        SockRef::from(&socket).set_tcp_notsent_lowat(LEAST_UNSENT)?;
        // A kernel without this option finds the link back later.
        _ = retransmits_within(socket.as_fd(), LONGEST_RETRANSMISSION);
        Ok(Self { socket: TcpStream::from_std(socket.into())? })
    }

    /// Waits until the kernel holds few enough unsent bytes.
    ///
    /// # Errors
    /// Errors of the system.
    pub async fn room(&self) -> io::Result<()> {
        // Polling marks the connection, so that the kernel notifies when there is room again; otherwise only a failed
        // write would mark it.
        let ask = || {
            let mut asked = [PollFd::new(&self.socket, PollFlags::OUT)];
            poll(&mut asked, Some(&Timespec::default()))?;
            match asked[0].revents().is_empty() {
                true => Err(io::ErrorKind::WouldBlock.into()),
                false => Ok(()),
            }
        };
        self.socket.async_io(Interest::WRITABLE, ask).await
    }

    /// The kernel's counters now, if it tells them.
    pub fn info(&self) -> Option<TcpInfo> {
        TcpInfo::of(&self.socket).ok()
    }

    /// Whether bytes have arrived that nobody has read yet.
    pub fn has_unread(&self) -> bool {
        rustix::io::ioctl_fionread(&self.socket).is_ok_and(|bytes| bytes > 0)
    }

    /// Updates the reading if the last one is old, and fits the limit of unsent bytes to the rate.
    pub fn look(&self, reading: &mut Reading, now: Time) {
        if reading.at.is_some_and(|at| now.since(at) < FRESH) {
            return;
        }
        let Ok(info) = TcpInfo::of(&self.socket) else { return };
        reading.learn(info, now);
        let limit = reading.rate().bytes_in(AHEAD).as_bytes();
        let limit = (limit as u32).clamp(LEAST_UNSENT, MOST_UNSENT).next_power_of_two();
        if limit != reading.unsent_limit
            && SockRef::from(&self.socket).set_tcp_notsent_lowat(limit).is_ok()
        {
            reading.unsent_limit = limit;
        }
    }
}

impl Reading {
    fn learn(&mut self, info: TcpInfo, now: Time) {
        let is_new = info.acknowledged > self.info.acknowledged;
        let sample = info.delivery_rate.as_bps() as f64;
        if is_new && sample > 0.0 {
            self.rate = match self.rate {
                0.0 => sample,
                // A sample that was limited by our sending is a lower bound.
                rate if info.delivery_app_limited => rate.max(sample),
                rate => rate + (sample - rate) * GAIN,
            };
        }
        (self.info, self.at) = (info, Some(now));
    }

    /// The rate is no longer known.
    pub fn forget_rate(&mut self) {
        self.rate = 0.0;
    }

    /// The smoothed delivery rate; zero if it is not known.
    pub fn rate(&self) -> Rate {
        Rate::from_bps(self.rate as u64)
    }

    /// Of the bytes that TCP sent, the share that it sent again, from 0 to 1.
    pub fn loss(&self) -> f64 {
        let again = f64::from(self.info.retransmitted) * f64::from(self.info.mss);
        let all = again + self.info.acknowledged as f64;
        if all > 0.0 { again / all } else { 0.0 }
    }

    pub fn info(&self) -> &TcpInfo {
        &self.info
    }

    /// Whether bytes were acknowledged since the last call and the kernel holds more: then the link is slow, not
    /// silent. An empty queue does not count, because what a relay acknowledged last proves nothing about the path
    /// beyond it.
    pub fn drains(&mut self) -> bool {
        let has_more = self.info.unsent > 0 || self.info.unacknowledged > 0;
        let before = std::mem::replace(&mut self.drained, self.info.acknowledged);
        has_more && self.info.acknowledged > before
    }

    /// The link as the scheduler sees it.
    pub fn link(&self, id: LinkId) -> Link {
        Link {
            id,
            rate: self.rate(),
            rtt: self.info.rtt,
            unsent: self.info.unsent.into(),
            writable: false,
            usable: true,
            may_duplicate: true,
        }
    }
}

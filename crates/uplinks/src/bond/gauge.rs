//! What the kernel says of a link's connection.

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

/// A reading is used for so long.
const FRESH: Duration = Duration::from_micros(500);

/// Bytes that the kernel may hold unsent, at the least: a chunk's head start over an interrupt.
const LEAST_UNSENT: u32 = 16 << 10;

/// And at the most.
const MOST_UNSENT: u32 = 512 << 10;

/// What is unsent lasts so long at the link's rate: decisions stay as late as that.
const AHEAD: Duration = Duration::from_millis(4);

/// A link that was away serves again so soon after it is back: TCP alone doubles its patience each time, to two minutes,
/// and the other links may be away by then. The shortest that the kernel takes.
const LONGEST_RETRANSMISSION: Duration = Duration::from_secs(1);

/// Of a new reading of the rate so much counts: 1/8.
const GAIN: f64 = 0.125;

/// Watches one connection, by a second descriptor of it that is never read nor written.
#[derive(Debug)]
pub struct Gauge {
    socket: TcpStream,
}

/// The readings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    info: TcpInfo,
    at: Option<Time>,
    /// Bits a second; 0: not known.
    rate: f64,
    unsent_limit: u32,
    /// Bytes that were acknowledged when [`Self::drains`] was asked last.
    drained: u64,
}

impl Gauge {
    /// Of a duplicate of the connection's descriptor.
    ///
    /// # Errors
    /// The system's.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        SockRef::from(&socket).set_tcp_notsent_lowat(LEAST_UNSENT)?;
        // A kernel that does not know it finds the link back later.
        _ = retransmits_within(socket.as_fd(), LONGEST_RETRANSMISSION);
        Ok(Self { socket: TcpStream::from_std(socket.into())? })
    }

    /// Waits until the kernel holds little enough that is unsent.
    ///
    /// # Errors
    /// The system's.
    pub async fn room(&self) -> io::Result<()> {
        // Asking marks the connection, so that the kernel tells when there is room again; without
        // that only a write that failed would.
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

    /// What the kernel counts by now, where it tells.
    pub fn info(&self) -> Option<TcpInfo> {
        TcpInfo::of(&self.socket).ok()
    }

    /// Whether something came that nobody has read yet.
    pub fn has_unread(&self) -> bool {
        rustix::io::ioctl_fionread(&self.socket).is_ok_and(|bytes| bytes > 0)
    }

    /// Reads it, if the last reading is old.
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
                // One that was held up by us is a lower bound.
                rate if info.delivery_app_limited => rate.max(sample),
                rate => rate + (sample - rate) * GAIN,
            };
        }
        (self.info, self.at) = (info, Some(now));
    }

    /// The rate is not known any more.
    pub fn forget_rate(&mut self) {
        self.rate = 0.0;
    }

    /// What it delivers.
    pub fn rate(&self) -> Rate {
        Rate::from_bps(self.rate as u64)
    }

    /// Of the bytes that TCP sent, the share that it sent again.
    pub fn loss(&self) -> f64 {
        let again = f64::from(self.info.retransmitted) * f64::from(self.info.mss);
        let all = again + self.info.acknowledged as f64;
        if all > 0.0 { again / all } else { 0.0 }
    }

    /// The kernel's counters.
    pub fn info(&self) -> &TcpInfo {
        &self.info
    }

    /// Whether the kernel got rid of some of what it holds since this was asked last, and holds more:
    /// then the link is slow, not silent. What a relay acknowledged last proves nothing beyond it, so
    /// an empty queue does not count.
    pub fn drains(&mut self) -> bool {
        let has_more = self.info.unsent > 0 || self.info.unacknowledged > 0;
        let before = std::mem::replace(&mut self.drained, self.info.acknowledged);
        has_more && self.info.acknowledged > before
    }

    /// As the scheduler sees it.
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

//! The server of a link's queue: computes departures.

/// Bits per byte times nanoseconds per second: `len · SCALE / rate` is in nanoseconds.
const SCALE: u64 = 8_000_000_000;

/// A work-conserving server with one rate.
///
/// Times are nanoseconds. Departures are exact: the fraction of a nanosecond that rounding cuts off is carried over to
/// the next packet while the server is busy.
#[derive(Clone, Debug)]
pub(super) struct Server {
    /// Bits per second, > 0; `None`: no limit.
    rate: Option<u64>,
    free_at: u64,
    /// The remainder of the last division: `carry / rate` nanoseconds, below 1.
    carry: u64,
}

impl Server {
    pub(super) fn new(rate: Option<u64>, now: u64) -> Self {
        Self { rate, free_at: now, carry: 0 }
    }

    pub(super) fn rate(&self) -> Option<u64> {
        self.rate
    }

    /// The time at which all accepted packets have left.
    pub(super) fn free_at(&self) -> u64 {
        self.free_at
    }

    /// Bytes that have not left at `now`: `(free_at − now) · rate`, to the nearest byte.
    pub(super) fn backlog(&self, now: u64) -> u64 {
        match self.rate {
            Some(rate) if self.free_at > now => {
                // f64 is exact to a byte up to 2^53; an integer product would overflow.
                ((self.free_at - now) as f64 * rate as f64 / SCALE as f64 + 0.5) as u64
            }
            _ => 0,
        }
    }

    /// Accepts `len` bytes at `now`; returns the departure: `max(now, free_at) + len / rate`.
    pub(super) fn serve(&mut self, now: u64, len: u32) -> u64 {
        let Some(rate) = self.rate else { return now };
        if now > self.free_at {
            (self.free_at, self.carry) = (now, 0);
        }
        let work = u64::from(len).saturating_mul(SCALE).saturating_add(self.carry);
        self.carry = work % rate;
        self.free_at = self.free_at.saturating_add(work / rate);
        self.free_at
    }

    /// Changes the rate. Bytes that have not left are served at the new rate.
    pub(super) fn change_rate(&mut self, now: u64, rate: Option<u64>) {
        self.free_at = Rescale { now, from: self.rate, to: rate }.apply(self.free_at).max(now);
        (self.rate, self.carry) = (rate, 0);
    }

    /// Drops the backlog.
    pub(super) fn clear(&mut self, now: u64) {
        (self.free_at, self.carry) = (now, 0);
    }
}

/// Maps departures when the rate changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rescale {
    pub(super) now: u64,
    pub(super) from: Option<u64>,
    pub(super) to: Option<u64>,
}

impl Rescale {
    /// Returns `now + (departure − now) · from / to` for a departure after `now`, and earlier departures unchanged.
    pub(super) fn apply(self, departure: u64) -> u64 {
        let (Some(left), Some(from)) = (departure.checked_sub(self.now), self.from) else {
            return departure;
        };
        let Some(to) = self.to else { return self.now };
        let scaled = u128::from(left) * u128::from(from) / u128::from(to.max(1));
        self.now.saturating_add(u64::try_from(scaled).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn departures_are_exact_over_many_packets() {
        // At 3 Mbit/s, 1000 bytes take 2,666,666 2/3 ns; three packets take exactly 8 ms.
        let mut server = Server::new(Some(3_000_000), 0);
        let departures: Vec<_> = (0..3).map(|_| server.serve(0, 1000)).collect();
        assert_eq!(departures, [2_666_666, 5_333_333, 8_000_000]);
        assert_eq!(server.backlog(0), 3000);
        assert_eq!(server.backlog(4_000_000), 1500);
        assert_eq!(server.serve(10_000_000, 1000), 12_666_666);
    }

    #[test]
    fn the_backlog_is_served_at_a_new_rate() {
        let mut server = Server::new(Some(8_000_000), 0);
        server.serve(0, 10_000);
        server.change_rate(4_000_000, Some(4_000_000));
        assert_eq!((server.free_at(), server.backlog(4_000_000)), (16_000_000, 6000));
        server.change_rate(5_000_000, None);
        assert_eq!((server.free_at(), server.serve(5_000_000, 1000)), (5_000_000, 5_000_000));
    }

    #[test]
    fn a_server_without_a_rate_limit_has_no_backlog() {
        let mut server = Server::new(None, 0);
        assert_eq!((server.serve(7, 1500), server.backlog(7)), (7, 0));
        server.change_rate(9, Some(8_000_000));
        assert_eq!(server.serve(9, 1000), 1_000_009);
    }
}

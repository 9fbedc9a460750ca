//! Whether a value is the path's own or only what was asked of it.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What an estimate says about the true value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// It is the value, within the spread.
    Exact,
    /// The true value is no smaller: something other than the path held the sample back.
    AtLeast,
}

/// For how much of a passive sample's time the path was not what limited it.
///
/// From two readings of the kernel's counters (`net::TcpInfo`): `application` is
/// `total` less the growth of `busy`; the others are the growth of their
/// namesakes. The kernel charges every moment to one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitedTime {
    /// Nothing to send.
    pub application: Duration,
    /// The receiver's window was shut: a slow reader, or a relay's back-pressure.
    pub receiver: Duration,
    /// Our send buffer was too small for the path.
    pub send_buffer: Duration,
    /// The sample's whole time.
    pub total: Duration,
}

impl Bound {
    /// The bound of a passive throughput sample: [`Bound::AtLeast`] if it was limited by
    /// application, receiver or send buffer, all taken together, for *more* than a
    /// tenth of its time, or lasted no time at all.
    ///
    /// Without this rule a fast first leg, throttled by a slow second one, would enter
    /// the table as slow, and no plan would ever use it again.
    pub fn of_passive(limited: &LimitedTime) -> Self {
        let held = limited.application + limited.receiver + limited.send_buffer;
        match limited.total.is_zero() || held > limited.total / 10 {
            true => Self::AtLeast,
            false => Self::Exact,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(application: u64, receiver: u64, send_buffer: u64) -> Bound {
        let ms = Duration::from_millis;
        Bound::of_passive(&LimitedTime {
            application: ms(application),
            receiver: ms(receiver),
            send_buffer: ms(send_buffer),
            total: ms(1000),
        })
    }

    #[test]
    fn more_than_a_tenth_of_the_time_limited_makes_a_lower_bound() {
        assert_eq!(bound(0, 0, 0), Bound::Exact);
        assert_eq!(bound(100, 0, 0), Bound::Exact);
        for (application, receiver, send_buffer) in [(101, 0, 0), (0, 101, 0), (0, 0, 101)] {
            assert_eq!(bound(application, receiver, send_buffer), Bound::AtLeast);
        }
    }

    #[test]
    fn the_three_reasons_add_up() {
        assert_eq!(bound(40, 30, 30), Bound::Exact);
        assert_eq!(bound(40, 30, 31), Bound::AtLeast);
    }

    #[test]
    fn a_sample_of_no_time_is_a_lower_bound() {
        let none = Duration::ZERO;
        let empty =
            LimitedTime { application: none, receiver: none, send_buffer: none, total: none };
        assert_eq!(Bound::of_passive(&empty), Bound::AtLeast);
    }
}

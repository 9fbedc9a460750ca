//! Whether a measured value is the path's own or only a lower bound.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What an estimate says about the true value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The value itself, within the spread.
    Exact,
    /// A lower bound: something other than the path limited the sample.
    AtLeast,
}

/// How long something other than the path limited a passive sample.
///
/// Computed from two readings of the kernel's counters (`net::TcpInfo`): `application` is `total` minus the growth of
/// `busy`; the others are the growth of the counters with the same names. The kernel charges every moment to exactly
/// one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitedTime {
    /// The application had nothing to send.
    pub application: Duration,
    /// The receiver's window was closed, by a slow reader or by a relay's back-pressure.
    pub receiver: Duration,
    /// Our send buffer was too small for the path.
    pub send_buffer: Duration,
    /// The duration of the sample.
    pub total: Duration,
}

impl Bound {
    /// The bound of a passive throughput sample: [`Bound::AtLeast`] if application, receiver and send buffer together
    /// limited it for *more* than a tenth of its time, or if its duration is zero.
    ///
    /// Without this rule a fast first leg that is throttled by a slow second one would enter the table as slow, and no
    /// plan would use it again.
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
    fn the_three_limits_add_up() {
        assert_eq!(bound(40, 30, 30), Bound::Exact);
        assert_eq!(bound(40, 30, 31), Bound::AtLeast);
    }

    #[test]
    fn a_sample_of_zero_duration_is_a_lower_bound() {
        let none = Duration::ZERO;
        let empty =
            LimitedTime { application: none, receiver: none, send_buffer: none, total: none };
        assert_eq!(Bound::of_passive(&empty), Bound::AtLeast);
    }
}

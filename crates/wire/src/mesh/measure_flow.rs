//! What passes on a channel `thalweg/measure/1`: one bulk flow, judged by who receives it.
//!
//! ```text
//! in TLS   sender →   hello: the oracle's ticket, limits
//! in TLS ← receiver   answer: accepted with its own limits, then GO; or refused
//! in TLS   sender →   GO-ACK
//! clear    sender →   bytes that mean nothing, until the verdict, a limit, or FIN
//! clear  ← receiver   counts, a few a second; at last a verdict
//! ```
//!
//! After the cut-over ([`super::GO`]) both directions are clear, so that TLS does not limit
//! what is measured. Whoever sits on the path and could alter a count could as well hold back
//! the flow; what the oracle believes comes from both ends over their own channels to it.
//!
//! All messages are `length:u16 ‖ postcard`, big-endian, as [`super::Ask`].

use super::{measure::MOST_BPS, measure_ticket::Void};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::time::Duration;
use thiserror::Error;

/// The longest message: a hello with the longest ticket has 211 bytes.
pub const MAX_MESSAGE: usize = 256;

/// No flow takes longer, µs: ten times what any node allows.
pub const MOST_MICROS: u64 = 60_000_000;

/// What the sender begins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The signed [`super::measure_ticket::Ticket`].
    pub ticket: Vec<u8>,
    /// What is to be sent.
    pub limits: Limits,
}

/// The bounds of one flow; the tighter of both ends' hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The most bytes.
    pub bytes: u64,
    /// The longest time from the first byte, ms.
    pub millis: u32,
}

impl Limits {
    /// The longest time.
    pub fn time(&self) -> Duration {
        Duration::from_millis(self.millis.into())
    }

    /// The tighter of each.
    #[must_use]
    pub fn tightest(self, other: Self) -> Self {
        Self { bytes: self.bytes.min(other.bytes), millis: self.millis.min(other.millis) }
    }
}

/// What the receiver says to a [`Hello`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It is ready; GO follows in the same record.
    Accepted(Limits),
    /// It is not.
    Refused(Refusal),
}

/// Why a node does not receive a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Refusal {
    /// It takes part in another measurement.
    #[error("it takes part in another measurement")]
    Busy,
    /// Its bytes for the day are used up.
    #[error("its bytes for measurements are used up for today")]
    Budget,
    /// The oracle has not ordered this.
    #[error("{0}")]
    Void(Void),
}

/// What the receiver says on the clear leg.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Said {
    /// So far.
    Count {
        /// All bytes that came.
        bytes: u64,
        /// Since the first of them, µs.
        micros: u64,
    },
    /// The end.
    Verdict(Verdict),
}

/// What the receiver found; its own report to the oracle says the same. The sender reports
/// what it counted itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// All bytes that came.
    pub bytes: u64,
    /// From the first to the last of them, µs; [`MOST_MICROS`] at most.
    pub micros: u64,
    /// bit/s after slow start; 0 to [`MOST_BPS`].
    pub bps: f64,
    /// Half the width of the middle half of its samples, bit/s.
    pub spread_bps: Option<f64>,
    /// Whether it had become steady; else a limit ended it.
    pub steady: bool,
    /// Whether the leg may be faster.
    pub at_least: bool,
}

/// The bytes are no message of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FlowError {
    /// Longer than [`MAX_MESSAGE`].
    #[error("a message of {0} bytes is longer than allowed in a measurement")]
    TooLong(usize),
    /// Not readable, or numbers that make no sense.
    #[error("a message of the measurement is not readable")]
    Invalid,
}

/// A message of a measurement.
pub trait Message: Serialize + DeserializeOwned {
    /// `length:u16 ‖ postcard`.
    fn encode(&self) -> Vec<u8> {
        // Writing to a vector fails for no value of these types.
        let body = postcard::to_stdvec(self).unwrap_or_default();
        let mut out = Vec::with_capacity(2 + body.len());
        out.extend((body.len() as u16).to_be_bytes());
        out.extend(body);
        out
    }

    /// How long the body is, from the first two bytes.
    ///
    /// # Errors
    /// [`FlowError::TooLong`].
    fn length(head: [u8; 2]) -> Result<usize, FlowError> {
        let length = usize::from(u16::from_be_bytes(head));
        if length > MAX_MESSAGE { Err(FlowError::TooLong(length)) } else { Ok(length) }
    }

    /// Reads the body, all of it.
    ///
    /// # Errors
    /// [`FlowError`].
    fn decode(body: &[u8]) -> Result<Self, FlowError> {
        match postcard::take_from_bytes::<Self>(body) {
            Ok((message, [])) if message.is_sound() => Ok(message),
            _ => Err(FlowError::Invalid),
        }
    }

    /// Whether its numbers can be computed with.
    fn is_sound(&self) -> bool {
        true
    }
}

impl Message for Hello {}

impl Message for Answer {}

impl Message for Said {
    fn is_sound(&self) -> bool {
        let sound = |v: f64| (0.0..=MOST_BPS).contains(&v);
        let (micros, rates) = match self {
            Self::Count { micros, .. } => (*micros, true),
            Self::Verdict(v) => (v.micros, sound(v.bps) && v.spread_bps.is_none_or(sound)),
        };
        rates && micros <= MOST_MICROS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fmt::Debug;

    fn round<M: Message + PartialEq + Debug>(message: &M) {
        let bytes = message.encode();
        let length = M::length([bytes[0], bytes[1]]).unwrap();
        assert_eq!(length, bytes.len() - 2);
        assert_eq!(M::decode(&bytes[2..]).as_ref(), Ok(message));
        let longer = [&bytes[2..], &[0]].concat();
        assert_eq!(M::decode(&longer), Err(FlowError::Invalid), "nothing may follow");
        for cut in 2..bytes.len() {
            assert!(M::decode(&bytes[2..cut]).is_err(), "{message:?} cut at {cut}");
        }
    }

    proptest! {
        #[test]
        fn all_messages_go_both_ways(
            ticket in proptest::collection::vec(any::<u8>(), 0..=194),
            bytes: u64, millis: u32, micros in 0..=MOST_MICROS,
            bps in 0.0..=MOST_BPS, spread_bps in proptest::option::of(0.0..=MOST_BPS),
            steady: bool, at_least: bool,
        ) {
            let limits = Limits { bytes, millis };
            round(&Hello { ticket, limits });
            round(&Answer::Accepted(limits));
            round(&Answer::Refused(Refusal::Busy));
            round(&Answer::Refused(Refusal::Void(Void::Used)));
            round(&Said::Count { bytes, micros });
            round(&Said::Verdict(Verdict { bytes, micros, bps, spread_bps, steady, at_least }));
        }

        #[test]
        fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            // What is read has one form alone, but for what postcard pads.
            if let Ok(said) = Said::decode(&bytes) {
                prop_assert!(said.is_sound());
                prop_assert_eq!(Said::decode(&said.encode()[2..]), Ok(said));
            }
            if let Ok(hello) = Hello::decode(&bytes) {
                prop_assert_eq!(Hello::decode(&hello.encode()[2..]), Ok(hello));
            }
            if let Ok(answer) = Answer::decode(&bytes) {
                prop_assert_eq!(Answer::decode(&answer.encode()[2..]), Ok(answer));
            }
        }
    }

    #[test]
    fn rates_and_times_that_no_flow_has_are_refused() {
        let verdict = Verdict {
            bytes: 1,
            micros: MOST_MICROS,
            bps: MOST_BPS,
            spread_bps: None,
            steady: true,
            at_least: false,
        };
        let read = |v: Verdict| Said::decode(&Said::Verdict(v).encode()[2..]);
        assert_eq!(read(verdict), Ok(Said::Verdict(verdict)));
        for bps in [f64::NAN, f64::INFINITY, -1.0, MOST_BPS * 1.001] {
            assert_eq!(read(Verdict { bps, ..verdict }), Err(FlowError::Invalid), "{bps}");
            let spread_bps = Some(bps);
            assert_eq!(read(Verdict { spread_bps, ..verdict }), Err(FlowError::Invalid), "{bps}");
        }
        assert_eq!(read(Verdict { micros: u64::MAX, ..verdict }), Err(FlowError::Invalid));
        let count = Said::Count { bytes: 1, micros: MOST_MICROS + 1 };
        assert_eq!(Said::decode(&count.encode()[2..]), Err(FlowError::Invalid));
        assert_eq!(Said::length([1, 1]), Err(FlowError::TooLong(257)));
    }
}

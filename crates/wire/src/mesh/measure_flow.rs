//! The protocol of the channel `thalweg/measure/1`: one bulk flow, whose rate the receiver determines.
//!
//! ```text
//! in TLS   sender →   Hello: the oracle's ticket, limits
//! in TLS ← receiver   Answer: accepted with the receiver's limits, then GO; or refused
//! in TLS   sender →   GO-ACK
//! clear    sender →   meaningless bytes, until the verdict, a limit, or FIN
//! clear  ← receiver   counts, a few per second; finally a verdict
//! ```
//!
//! After the cut-over ([`super::GO`]) both directions are clear, so that TLS does not limit the measured rate. An
//! attacker on the path who could alter a count could as well slow the flow down; the oracle uses reports that both
//! ends send over their own channels to it.
//!
//! All messages are `length:u16 ‖ postcard`, big-endian, like [`super::RelayRequest`].

use super::{measure::MOST_BPS, measure_ticket::TicketError};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::time::Duration;
use thiserror::Error;

/// The longest message, bytes: a hello with the longest ticket has 211.
pub const MAX_MESSAGE: usize = 256;

/// The longest valid duration of a flow, µs: ten times what any node allows.
pub const MOST_MICROS: u64 = 60_000_000;

/// The first message of the sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The signed [`super::measure_ticket::Ticket`].
    pub ticket: Vec<u8>,
    /// The bounds of the flow.
    pub limits: Limits,
}

/// The bounds of one flow; the tighter ones of both ends apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The maximum number of bytes.
    pub bytes: u64,
    /// The maximum time from the first byte, ms.
    pub millis: u32,
}

impl Limits {
    /// The maximum time from the first byte.
    pub fn time(&self) -> Duration {
        Duration::from_millis(self.millis.into())
    }

    /// The tighter bound of each kind.
    #[must_use]
    pub fn tightest(self, other: Self) -> Self {
        Self { bytes: self.bytes.min(other.bytes), millis: self.millis.min(other.millis) }
    }
}

/// The receiver's reply to a [`Hello`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The receiver is ready; GO follows in the same record.
    Accepted(Limits),
    /// The receiver refuses the flow.
    Refused(Refusal),
}

/// Why a node refuses to receive a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The node takes part in another measurement.
    #[error("it takes part in another measurement")]
    Busy,
    /// The node's daily bytes are used up.
    #[error("its bytes for measurements are used up for today")]
    Budget,
    /// The ticket is not valid.
    #[error("{0}")]
    Void(TicketError),
}

/// A message of the receiver on the clear leg.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum ReceiverMessage {
    /// The bytes received so far.
    Count {
        bytes: u64,
        /// The time since the first byte, µs.
        micros: u64,
    },
    Verdict(Verdict),
}

/// The receiver's result. The receiver reports the same to the oracle; the sender reports its own counts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// All bytes received.
    pub bytes: u64,
    /// The time from the first byte to the last, µs; at most [`MOST_MICROS`].
    pub micros: u64,
    /// The rate after slow start, bit/s; 0 to [`MOST_BPS`].
    pub bps: f64,
    /// Half the interquartile range of the samples, bit/s.
    pub spread_bps: Option<f64>,
    /// Whether the rate had become steady; otherwise a limit ended the flow.
    pub steady: bool,
    /// Whether the leg may be faster.
    pub at_least: bool,
}

/// The bytes are not a message of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FlowError {
    /// The message is longer than [`MAX_MESSAGE`].
    #[error("a message of {0} bytes is longer than allowed in a measurement")]
    TooLong(usize),
    /// The message cannot be decoded, or has numbers out of range.
    #[error("a message of the measurement is not readable")]
    Invalid,
}

/// A message of a measurement.
pub trait Message: Serialize + DeserializeOwned {
    /// Encodes `length:u16 ‖ postcard`.
    fn encode(&self) -> Vec<u8> {
        // Encoding these types to a vector cannot fail.
        let body = postcard::to_stdvec(self).unwrap_or_default();
        let mut out = Vec::with_capacity(2 + body.len());
        out.extend((body.len() as u16).to_be_bytes());
        out.extend(body);
        out
    }

    /// The length of the body, from the first two bytes.
    ///
    /// # Errors
    /// [`FlowError::TooLong`].
    fn length(head: [u8; 2]) -> Result<usize, FlowError> {
        let length = usize::from(u16::from_be_bytes(head));
        if length > MAX_MESSAGE { Err(FlowError::TooLong(length)) } else { Ok(length) }
    }

    /// Decodes the whole body.
    ///
    /// # Errors
    /// [`FlowError`].
    fn decode(body: &[u8]) -> Result<Self, FlowError> {
        match postcard::take_from_bytes::<Self>(body) {
            Ok((message, [])) if message.is_sound() => Ok(message),
            _ => Err(FlowError::Invalid),
        }
    }

    /// Whether its numbers are in range.
    fn is_sound(&self) -> bool {
        true
    }
}

impl Message for Hello {}

impl Message for Answer {}

impl Message for ReceiverMessage {
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

    fn round_trip<M: Message + PartialEq + Debug>(message: &M) {
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
        fn messages_round_trip(
            ticket in proptest::collection::vec(any::<u8>(), 0..=194),
            bytes: u64, millis: u32, micros in 0..=MOST_MICROS,
            bps in 0.0..=MOST_BPS, spread_bps in proptest::option::of(0.0..=MOST_BPS),
            steady: bool, at_least: bool,
        ) {
            let limits = Limits { bytes, millis };
            round_trip(&Hello { ticket, limits });
            round_trip(&Answer::Accepted(limits));
            round_trip(&Answer::Refused(Refusal::Busy));
            round_trip(&Answer::Refused(Refusal::Void(TicketError::Used)));
            round_trip(&ReceiverMessage::Count { bytes, micros });
            round_trip(&ReceiverMessage::Verdict(Verdict { bytes, micros, bps, spread_bps, steady, at_least }));
        }

        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            // Encodings are canonical, except that postcard allows padded integers.
            if let Ok(message) = ReceiverMessage::decode(&bytes) {
                prop_assert!(message.is_sound());
                prop_assert_eq!(ReceiverMessage::decode(&message.encode()[2..]), Ok(message));
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
    fn rates_and_times_out_of_range_are_refused() {
        let verdict = Verdict {
            bytes: 1,
            micros: MOST_MICROS,
            bps: MOST_BPS,
            spread_bps: None,
            steady: true,
            at_least: false,
        };
        let read = |v: Verdict| ReceiverMessage::decode(&ReceiverMessage::Verdict(v).encode()[2..]);
        assert_eq!(read(verdict), Ok(ReceiverMessage::Verdict(verdict)));
        for bps in [f64::NAN, f64::INFINITY, -1.0, MOST_BPS * 1.001] {
            assert_eq!(read(Verdict { bps, ..verdict }), Err(FlowError::Invalid), "{bps}");
            let spread_bps = Some(bps);
            assert_eq!(read(Verdict { spread_bps, ..verdict }), Err(FlowError::Invalid), "{bps}");
        }
        assert_eq!(read(Verdict { micros: u64::MAX, ..verdict }), Err(FlowError::Invalid));
        let count = ReceiverMessage::Count { bytes: 1, micros: MOST_MICROS + 1 };
        assert_eq!(ReceiverMessage::decode(&count.encode()[2..]), Err(FlowError::Invalid));
        assert_eq!(ReceiverMessage::length([1, 1]), Err(FlowError::TooLong(257)));
    }
}

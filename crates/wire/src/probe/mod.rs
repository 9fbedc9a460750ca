//! The datagrams of probe trains (MGRP §2.2): probes with riders in their padding, and riders in
//! datagrams of their own.
//!
//! Outside is [`OUTER`]: whose they are and their number, by which each is sealed and none counts twice. What is
//! sealed is a [`Payload`].

mod control;
mod payload;

pub use control::{Ask, Can, LABEL, MAX_MESSAGE, NO_TRAIN, Planned, Refusal, Tell};
pub use payload::{Payload, PayloadError, ProbeHead};

/// `session:u32 ‖ number:u64`, big-endian, in the clear; the number is the nonce, too.
pub const OUTER: usize = 12;

/// What sealing adds (AES-GCM, ChaCha20-Poly1305).
pub const TAG: usize = 16;

/// The longest datagram: what UDP can carry over IPv4.
pub const MAX_DATAGRAM: usize = 65_507;

/// The longest bytes of a tool's own in a probe: what names a train, a probe and times, several times over. Receivers keep those of
/// thousands of probes. A longer one is an error.
pub const MAX_HEADER: usize = 256;

/// What a datagram says in the clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer {
    /// The session, as its receiver numbered it.
    pub session: u32,
    /// One more for each datagram of a session and direction.
    pub number: u64,
}

impl Outer {
    /// Its bytes.
    pub fn encode(self) -> [u8; OUTER] {
        let mut bytes = [0; OUTER];
        bytes[..4].copy_from_slice(&self.session.to_be_bytes());
        bytes[4..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// Reads it from a datagram's beginning, such as a router quotes; `None`: too short.
    pub fn read(datagram: &[u8]) -> Option<Self> {
        let [s0, s1, s2, s3, n @ ..] = *datagram.first_chunk::<OUTER>()?;
        let (session, number) = (u32::from_be_bytes([s0, s1, s2, s3]), u64::from_be_bytes(n));
        Some(Self { session, number })
    }

    /// Reads it, and what is sealed behind it; `None`: too short to be one.
    pub fn split(datagram: &[u8]) -> Option<(Self, &[u8])> {
        let (outer, sealed) = (Self::read(datagram)?, &datagram[OUTER..]);
        (sealed.len() > TAG).then_some((outer, sealed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outside_is_read_as_it_was_written() {
        let outer = Outer { session: 7, number: 1 << 40 };
        let mut datagram = outer.encode().to_vec();
        datagram.extend([1; TAG]);
        assert_eq!(Outer::split(&datagram), None, "nothing is sealed");
        datagram.push(1);
        assert_eq!(Outer::split(&datagram), Some((outer, &[1; TAG + 1][..])));
    }
}

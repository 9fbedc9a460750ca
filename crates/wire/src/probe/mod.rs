//! The datagrams and messages of probe trains (MGRP §2.2): probes with riders in their padding, and riders in datagrams
//! of their own.
//!
//! A datagram begins with [`Outer`] in the clear: the session and the datagram's number, which is the nonce of the seal
//! and detects duplicates. The sealed part is a [`Payload`].

mod control;
mod payload;

pub use control::{
    Capabilities, LABEL, MAX_BLOCK, MAX_MESSAGE, NO_TRAIN, NodeReply, PlannedProbe, ProbeRequest,
    Refusal,
};
pub use payload::{Payload, PayloadError, ProbeHead};

/// The length of [`Outer`], bytes: `session:u32 ‖ number:u64`, big-endian, in the clear. The number is the nonce, too.
pub const OUTER: usize = 12;

/// The bytes added by sealing (AES-GCM, ChaCha20-Poly1305).
pub const TAG: usize = 16;

/// The longest datagram, bytes: the limit of UDP over IPv4.
pub const MAX_DATAGRAM: usize = 65_507;

/// The longest header of a tool in a probe, bytes: several times the size of train, probe and times. Receivers keep the
/// headers of thousands of probes. A longer one is an error.
pub const MAX_HEADER: usize = 256;

/// The clear part of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer {
    /// The session's number, chosen by the receiver.
    pub session: u32,
    /// The datagram's number, which increases by one per datagram of a session and direction.
    pub number: u64,
}

impl Outer {
    pub fn encode(self) -> [u8; OUTER] {
        let mut bytes = [0; OUTER];
        bytes[..4].copy_from_slice(&self.session.to_be_bytes());
        bytes[4..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// Decodes it from the beginning of a datagram, such as an ICMP message quotes; `None` if that is too short.
    pub fn read(datagram: &[u8]) -> Option<Self> {
        let [s0, s1, s2, s3, n @ ..] = *datagram.first_chunk::<OUTER>()?;
        let (session, number) = (u32::from_be_bytes([s0, s1, s2, s3]), u64::from_be_bytes(n));
        Some(Self { session, number })
    }

    /// Splits a datagram into the clear and the sealed part; `None` if it is too short.
    pub fn split(datagram: &[u8]) -> Option<(Self, &[u8])> {
        let (outer, sealed) = (Self::read(datagram)?, &datagram[OUTER..]);
        (sealed.len() > TAG).then_some((outer, sealed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clear_part_round_trips() {
        let outer = Outer { session: 7, number: 1 << 40 };
        let mut datagram = outer.encode().to_vec();
        datagram.extend([1; TAG]);
        assert_eq!(Outer::split(&datagram), None, "nothing is sealed");
        datagram.push(1);
        assert_eq!(Outer::split(&datagram), Some((outer, &[1; TAG + 1][..])));
    }
}

//! Tickets: with one, the oracle lets a member measure the leg to another member, once.
//!
//! The sender of a flow shows its ticket in the [`super::measure_flow::Hello`]. Without tickets a member could keep
//! another one busy, or use up its daily bytes, as often as it likes. A ticket is signed with the mesh's key, like the
//! roster, so that each member can verify it alone, whichever of several oracles issued it (decision 0049).

use crate::{DecodeError, Signable, Signed, SignedError, Signer, Verifier};
use data_encoding::BASE64URL_NOPAD;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use thalweg_units::{NodeId, WallTime};
use thiserror::Error;

/// The tolerated difference between two hosts' clocks. A ticket is good for one flow however long it is valid, so the
/// tolerance costs only memory for the numbers of used tickets.
pub const CLOCKS_APART: Duration = Duration::from_secs(600);

/// The longest validity that an oracle may give a ticket.
pub const LONGEST: Duration = Duration::from_secs(600);

/// A ticket: the part of an order that its receiver checks. See [`Signed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// [`super::measure::Order::id`].
    pub order: u64,
    /// The sender's key, which the sender proves on the channel.
    pub from: NodeId,
    pub to: NodeId,
    /// The maximum number of bytes.
    pub bytes: u64,
    /// The date from which on the ticket is invalid, by the oracle's clock.
    pub expiry: WallTime,
}

/// Why a ticket is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum TicketError {
    /// The ticket is missing, altered, or not signed with the mesh's key.
    #[error("the order is not signed by the mesh's key")]
    Unsigned,
    /// The ticket is for another sender or receiver.
    #[error("the order is for another pair of members")]
    AnotherPair,
    /// The ticket has expired.
    #[error("the order has expired by the receiver's clock: check the clocks of both hosts")]
    Expired,
    /// The ticket is valid for longer than any oracle allows.
    #[error("the order is from the future by the receiver's clock: check the clocks")]
    Future,
    /// The ticket was used for an earlier flow.
    #[error("the order was carried out before")]
    Used,
}

impl Ticket {
    /// Signs the ticket and encodes it as text for [`super::measure::Order::ticket`].
    pub fn sign(self, mesh: &impl Signer) -> String {
        BASE64URL_NOPAD.encode(&Signed::sign(self, mesh).encode())
    }

    /// Decodes that text to the bytes that the sender shows to the receiver; `None` if the text is invalid.
    pub fn bytes_of(text: &str) -> Option<Vec<u8>> {
        BASE64URL_NOPAD.decode(text.as_bytes()).ok()
    }

    /// Decodes a ticket that a sender shows, and checks that it is signed by this mesh, for this pair, and valid now.
    ///
    /// The caller must check that the ticket was not used before.
    ///
    /// # Errors
    /// [`TicketError`].
    pub fn admit(
        shown: &[u8],
        (mesh, verifier): (&NodeId, &impl Verifier),
        (from, to): (&NodeId, &NodeId),
        now: WallTime,
    ) -> Result<Self, TicketError> {
        let read: Result<Signed<Self>, SignedError> = Signed::open(shown, verifier);
        let signed = read.ok().filter(|s| s.signer() == *mesh).ok_or(TicketError::Unsigned)?;
        let ticket = signed.into_value();
        let (now, expiry) = (now.as_unix_nanos(), ticket.expiry.as_unix_nanos());
        let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        match () {
            () if ticket.from != *from || ticket.to != *to => Err(TicketError::AnotherPair),
            () if now >= expiry.saturating_add(nanos(CLOCKS_APART)) => Err(TicketError::Expired),
            () if expiry > now.saturating_add(nanos(LONGEST + CLOCKS_APART)) => {
                Err(TicketError::Future)
            }
            () => Ok(ticket),
        }
    }
}

impl Signable for Ticket {
    const DOMAIN: &'static str = "measure 1";
    /// Two keys and at most three numbers of ten bytes.
    const MAX_BYTES: usize = 94;

    fn encode(&self, out: &mut Vec<u8>) {
        // Encoding this type to a vector cannot fail.
        if let Ok(bytes) = postcard::to_stdvec(self) {
            out.extend(bytes);
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        match postcard::take_from_bytes::<Self>(bytes) {
            Ok((ticket, [])) => Ok(ticket),
            Ok((_, rest)) => Err(DecodeError::TooLong(rest.len())),
            Err(_) => Err(DecodeError::Invalid("a field of the order is not readable")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Signature;
    use proptest::prelude::*;

    /// A stand-in for Ed25519, which this crate does not depend on: a hash keyed with the public key.
    struct Hashed(NodeId);

    fn hashed(key: &NodeId, message: &[u8]) -> Signature {
        let hash = blake3::keyed_hash(key.as_bytes(), message);
        Signature::from_bytes([*hash.as_bytes(); 2].concat().try_into().unwrap())
    }

    impl Signer for Hashed {
        fn id(&self) -> NodeId {
            self.0
        }
        fn sign(&self, message: &[u8]) -> Signature {
            hashed(&self.0, message)
        }
    }

    impl Verifier for Hashed {
        fn verify(&self, signer: &NodeId, message: &[u8], signature: &Signature) -> bool {
            hashed(signer, message) == *signature
        }
    }

    fn id(n: u8) -> NodeId {
        NodeId::from_bytes([n; 32])
    }

    fn at(seconds: u64) -> WallTime {
        WallTime::from_unix_nanos(seconds * 1_000_000_000)
    }

    fn ticket() -> Ticket {
        Ticket { order: u64::MAX, from: id(1), to: id(2), bytes: u64::MAX, expiry: at(10_000) }
    }

    fn admit(shown: &[u8], pair: (u8, u8), now: u64) -> Result<Ticket, TicketError> {
        let mesh = id(9);
        Ticket::admit(shown, (&mesh, &Hashed(mesh)), (&id(pair.0), &id(pair.1)), at(now))
    }

    #[test]
    fn a_ticket_is_valid_for_its_pair_and_time_if_signed_by_the_mesh() {
        let text = ticket().sign(&Hashed(id(9)));
        let shown = Ticket::bytes_of(&text).unwrap();
        assert_eq!(admit(&shown, (1, 2), 9_990), Ok(ticket()));
        for pair in [(2, 1), (1, 3), (3, 2)] {
            assert_eq!(admit(&shown, pair, 9_990), Err(TicketError::AnotherPair), "{pair:?}");
        }
        // Small differences between clocks are tolerated; larger ones are reported.
        assert!(admit(&shown, (1, 2), 10_599).is_ok() && admit(&shown, (1, 2), 8_800).is_ok());
        assert_eq!(admit(&shown, (1, 2), 10_600), Err(TicketError::Expired));
        assert_eq!(admit(&shown, (1, 2), 8_799), Err(TicketError::Future));
        let own = Ticket::bytes_of(&ticket().sign(&Hashed(id(1)))).unwrap();
        assert_eq!(admit(&own, (1, 2), 9_990), Err(TicketError::Unsigned), "a member's own word");
        assert_eq!(admit(&[], (1, 2), 9_990), Err(TicketError::Unsigned));
        assert_eq!(Ticket::bytes_of("not one"), None);
    }

    #[test]
    fn the_longest_ticket_is_within_the_bound() {
        let widest = Ticket { expiry: WallTime::from_unix_nanos(u64::MAX), ..ticket() };
        let mut bytes = Vec::new();
        widest.encode(&mut bytes);
        assert_eq!((bytes.len(), Ticket::decode(&bytes)), (Ticket::MAX_BYTES, Ok(widest)));
    }

    proptest! {
        #[test]
        fn altered_tickets_are_refused(place in 0_usize..1000, to: u8) {
            let mut shown = Ticket::bytes_of(&ticket().sign(&Hashed(id(9)))).unwrap();
            let place = place % shown.len();
            prop_assume!(shown[place] != to);
            shown[place] = to;
            prop_assert_eq!(admit(&shown, (1, 2), 9_990), Err(TicketError::Unsigned));
        }

        #[test]
        fn any_bytes_are_a_ticket_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            if let Ok(ticket) = Ticket::decode(&bytes) {
                let mut again = Vec::new();
                ticket.encode(&mut again);
                prop_assert_eq!(Ticket::decode(&again), Ok(ticket));
            }
            prop_assert_eq!(admit(&bytes, (1, 2), 0), Err(TicketError::Unsigned));
        }
    }
}

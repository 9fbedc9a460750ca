//! What is sealed in a datagram.

use super::{MAX_DATAGRAM, OUTER, TAG};
use thalweg_measure::riders::Fragment;
use thiserror::Error;

const PROBE: u8 = 0;
const RIDERS: u8 = 1;

/// `kind:u8 ‖ train:u32 ‖ place:u16 ‖ sent:u64 ‖ header:u16`.
const PROBE_HEAD: usize = 17;

/// Where a probe belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeHead {
    /// Its train, one more for each of a session.
    pub train: u32,
    /// Its place in the train, from 0.
    pub place: u16,
    /// When it was to leave, and did unless its host paused just then, ns by the sender's clock.
    pub sent: u64,
}

/// What a datagram carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A probe; what is left of its size is zeros.
    Probe {
        /// Where it belongs.
        head: ProbeHead,
        /// The tool's own bytes.
        header: Vec<u8>,
        /// Riders.
        riders: Vec<Fragment>,
        /// Bytes of the payload, all included.
        size: u16,
    },
    /// Riders that found no probe.
    Riders(Vec<Fragment>),
}

/// The bytes are no payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PayloadError {
    /// Neither a probe nor riders.
    #[error("neither a probe nor riders")]
    Kind,
    /// It ends too early.
    #[error("it ends within a field")]
    Short,
    /// An empty fragment, or one beyond its rider's end.
    #[error("a fragment does not lie within its rider")]
    Fragment,
    /// Padding that is not zeros.
    #[error("its padding is not empty")]
    Padding,
}

impl Payload {
    /// The padding of a probe whose datagram has `datagram` bytes and whose tool has `header` of its own: what
    /// [`Fragment::cost`] is taken of. `None`: it is too small for what each probe needs.
    pub fn padding(datagram: u16, header: u16) -> Option<usize> {
        usize::from(datagram).checked_sub(OUTER + TAG + PROBE_HEAD + usize::from(header))
    }

    /// The least bytes of a datagram whose tool has `header` of its own.
    pub fn least(header: u16) -> u16 {
        header.saturating_add((OUTER + TAG + PROBE_HEAD) as u16)
    }

    /// The size of a payload whose datagram has `datagram` bytes.
    pub fn size_in(datagram: u16) -> u16 {
        datagram.saturating_sub((OUTER + TAG) as u16)
    }

    /// Its bytes. Of a probe at least its size; more only if riders do not fit, which [`Self::padding`] prevents.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Probe { head, header, riders, size } => {
                let mut out = Vec::with_capacity(usize::from(*size));
                out.push(PROBE);
                out.extend(head.train.to_be_bytes());
                out.extend(head.place.to_be_bytes());
                out.extend(head.sent.to_be_bytes());
                out.extend((header.len() as u16).to_be_bytes());
                out.extend(header);
                riders.iter().for_each(|rider| put(&mut out, rider));
                out.resize(out.len().max(usize::from(*size)), 0);
                out
            }
            Self::Riders(riders) => {
                let mut out = vec![RIDERS];
                riders.iter().for_each(|rider| put(&mut out, rider));
                out
            }
        }
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`PayloadError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, PayloadError> {
        if bytes.len() > MAX_DATAGRAM {
            return Err(PayloadError::Short);
        }
        let (kind, rest) = bytes.split_first().ok_or(PayloadError::Short)?;
        match *kind {
            PROBE => {
                let head = rest.first_chunk::<{ PROBE_HEAD - 1 }>().ok_or(PayloadError::Short)?;
                let [t0, t1, t2, t3, p0, p1, s @ .., h0, h1] = *head;
                let (train, place) =
                    (u32::from_be_bytes([t0, t1, t2, t3]), u16::from_be_bytes([p0, p1]));
                let head = ProbeHead { train, place, sent: u64::from_be_bytes(s) };
                let long = usize::from(u16::from_be_bytes([h0, h1]));
                let body = &rest[PROBE_HEAD - 1..];
                let (header, padding) = body.split_at_checked(long).ok_or(PayloadError::Short)?;
                let (header, riders) = (header.to_vec(), fragments(padding)?);
                Ok(Self::Probe { head, header, riders, size: bytes.len() as u16 })
            }
            RIDERS => match fragments(rest)? {
                riders if riders.is_empty() => Err(PayloadError::Short),
                riders => Ok(Self::Riders(riders)),
            },
            _ => Err(PayloadError::Kind),
        }
    }
}

/// `length:u16 ‖ rider:u32 ‖ total:u16 ‖ offset:u16 ‖ bytes`: [`thalweg_measure::riders::FRAGMENT_HEADER`] bytes and its own.
fn put(out: &mut Vec<u8>, fragment: &Fragment) {
    out.extend((fragment.bytes.len() as u16).to_be_bytes());
    out.extend(fragment.rider.to_be_bytes());
    out.extend(fragment.total.to_be_bytes());
    out.extend(fragment.offset.to_be_bytes());
    out.extend(&fragment.bytes);
}

/// Fragments up to the first empty one; behind it are zeros alone.
fn fragments(mut bytes: &[u8]) -> Result<Vec<Fragment>, PayloadError> {
    let mut all = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length));
        if length == 0 {
            break;
        }
        let (head, rest) = rest.split_first_chunk::<8>().ok_or(PayloadError::Short)?;
        let [r0, r1, r2, r3, t0, t1, o0, o1] = *head;
        let (own, rest) = rest.split_at_checked(length).ok_or(PayloadError::Short)?;
        let (total, offset) = (u16::from_be_bytes([t0, t1]), u16::from_be_bytes([o0, o1]));
        if usize::from(offset) + length > usize::from(total) {
            return Err(PayloadError::Fragment);
        }
        let rider = u32::from_be_bytes([r0, r1, r2, r3]);
        all.push(Fragment { rider, total, offset, bytes: own.to_vec() });
        bytes = rest;
    }
    match bytes.iter().all(|byte| *byte == 0) {
        true => Ok(all),
        false => Err(PayloadError::Padding),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thalweg_measure::riders::FRAGMENT_HEADER;

    fn fragment() -> impl Strategy<Value = Fragment> {
        let bytes = proptest::collection::vec(any::<u8>(), 1..200);
        (any::<u32>(), 0..1000_u16, 0..1000_u16, bytes).prop_map(|(rider, offset, more, bytes)| {
            Fragment { rider, total: offset + bytes.len() as u16 + more, offset, bytes }
        })
    }

    fn payload() -> impl Strategy<Value = Payload> {
        let riders = || proptest::collection::vec(fragment(), 0..4);
        let head = any::<(u32, u16, u64)>();
        let header = proptest::collection::vec(any::<u8>(), 0..40);
        let probe = (head, header, riders(), 0..300_u16).prop_map(
            |((train, place, sent), header, riders, more)| {
                let used: usize =
                    PROBE_HEAD + header.len() + riders.iter().map(Fragment::cost).sum::<usize>();
                let size = used as u16 + more;
                Payload::Probe { head: ProbeHead { train, place, sent }, header, riders, size }
            },
        );
        let alone = proptest::collection::vec(fragment(), 1..4).prop_map(Payload::Riders);
        prop_oneof![probe, alone]
    }

    #[test]
    fn a_fragment_costs_what_the_hold_thinks() {
        let mut out = Vec::new();
        let one = Fragment { rider: 1, total: 5, offset: 0, bytes: vec![1; 5] };
        put(&mut out, &one);
        assert_eq!((out.len(), FRAGMENT_HEADER), (one.cost(), 10));
    }

    #[test]
    fn what_fits_the_padding_keeps_the_size() {
        let padding = Payload::padding(300, 12).unwrap();
        assert_eq!(padding, 300 - 12 - 16 - 17 - 12);
        let rider = Fragment { rider: 1, total: 999, offset: 0, bytes: vec![9; padding - 10] };
        let head = ProbeHead { train: 1, place: 2, sent: 3 };
        let (header, size) = (vec![7; 12], Payload::size_in(300));
        let probe = Payload::Probe { head, header, riders: vec![rider], size };
        assert_eq!(probe.encode().len() + OUTER + TAG, 300);
        assert_eq!(Payload::padding(40, 12), None);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |bytes: &[u8]| Payload::decode(bytes).unwrap_err();
        assert_eq!(refused(&[]), PayloadError::Short);
        assert_eq!(refused(&[9; 30]), PayloadError::Kind);
        assert_eq!(refused(&[RIDERS, 0, 0]), PayloadError::Short, "riders, and none");
        assert_eq!(refused(&[RIDERS, 0, 2, 0, 0, 0, 1, 0, 1, 0, 0, 5, 5]), PayloadError::Fragment);
        assert_eq!(
            refused(&[RIDERS, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 5, 0, 0, 8]),
            PayloadError::Padding
        );
    }

    proptest! {
        #[test]
        fn a_payload_is_read_as_it_was_written(payload in payload()) {
            prop_assert_eq!(Payload::decode(&payload.encode()), Ok(payload));
        }

        #[test]
        fn whatever_is_read_is_written_the_same(bytes in proptest::collection::vec(0..3_u8, 0..120)) {
            if let Ok(payload) = Payload::decode(&bytes) {
                let written = payload.encode();
                prop_assert!(bytes.starts_with(&written) && bytes[written.len()..].iter().all(|b| *b == 0));
            }
        }
    }
}

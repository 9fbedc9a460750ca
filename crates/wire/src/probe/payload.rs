//! The sealed part of a datagram.

use super::{MAX_DATAGRAM, OUTER, TAG};
use thalweg_measure::riders::Fragment;
use thiserror::Error;

const PROBE: u8 = 0;
const RIDERS: u8 = 1;

/// Bytes before a probe's header: `kind:u8 ‖ train:u32 ‖ place:u16 ‖ sent:u64 ‖ header:u16`.
const PROBE_HEAD: usize = 17;

/// The position of a probe and its sending time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeHead {
    /// The number of the train, which increases by one per train of a session.
    pub train: u32,
    /// The position in the train, from 0.
    pub place: u16,
    /// The scheduled sending time, ns by the sender's clock. It is the actual time unless the host paused the sender at
    /// that moment.
    pub sent: u64,
}

/// The payload of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A probe; the rest of its size is zeros.
    Probe {
        /// The probe's position and sending time.
        head: ProbeHead,
        /// The tool's header.
        header: Vec<u8>,
        riders: Vec<Fragment>,
        /// The size of the whole payload, bytes.
        size: u16,
    },
    /// Fragments of riders that are sent without a probe.
    Riders(Vec<Fragment>),
}

/// Why bytes are not a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PayloadError {
    /// The kind is unknown.
    #[error("the payload is neither a probe nor riders")]
    Kind,
    /// The payload ends too early.
    #[error("the payload ends within a field")]
    Short,
    /// A fragment ends beyond the end of its rider.
    #[error("a fragment ends beyond its rider")]
    Fragment,
    /// The padding is not zero.
    #[error("the padding is not zero")]
    Padding,
}

impl Payload {
    /// The padding of a probe whose datagram has `datagram` bytes, of which the tool's header has `header`. Riders use
    /// it at [`Fragment::cost`]. `None`: the datagram is too small.
    pub fn padding(datagram: u16, header: u16) -> Option<usize> {
        usize::from(datagram).checked_sub(OUTER + TAG + PROBE_HEAD + usize::from(header))
    }

    /// The smallest datagram of a probe, bytes, if the tool's header has `header`.
    pub fn least(header: u16) -> u16 {
        header.saturating_add((OUTER + TAG + PROBE_HEAD) as u16)
    }

    /// The size of the payload of a datagram of `datagram` bytes.
    pub fn size_in(datagram: u16) -> u16 {
        datagram.saturating_sub((OUTER + TAG) as u16)
    }

    /// Encodes the payload. A probe has at least its size; more only if its riders do not fit, which [`Self::padding`]
    /// prevents.
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

    /// Decodes a payload.
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

/// Appends `length:u16 ‖ rider:u32 ‖ total:u16 ‖ offset:u16 ‖ bytes`, which takes
/// [`thalweg_measure::riders::FRAGMENT_HEADER`] bytes in addition to the fragment's own.
fn put(out: &mut Vec<u8>, fragment: &Fragment) {
    out.extend((fragment.bytes.len() as u16).to_be_bytes());
    out.extend(fragment.rider.to_be_bytes());
    out.extend(fragment.total.to_be_bytes());
    out.extend(fragment.offset.to_be_bytes());
    out.extend(&fragment.bytes);
}

/// Decodes fragments up to the first empty one, after which there must be only zeros.
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
    fn a_fragment_takes_its_cost_in_bytes() {
        let mut out = Vec::new();
        let one = Fragment { rider: 1, total: 5, offset: 0, bytes: vec![1; 5] };
        put(&mut out, &one);
        assert_eq!((out.len(), FRAGMENT_HEADER), (one.cost(), 10));
    }

    #[test]
    fn riders_that_fit_the_padding_keep_the_size() {
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
    fn invalid_payloads_are_refused() {
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
        fn payloads_round_trip(payload in payload()) {
            prop_assert_eq!(Payload::decode(&payload.encode()), Ok(payload));
        }

        #[test]
        fn a_payload_has_one_encoding_before_its_padding(bytes in proptest::collection::vec(0..3_u8, 0..120)) {
            if let Ok(payload) = Payload::decode(&bytes) {
                let written = payload.encode();
                prop_assert!(bytes.starts_with(&written) && bytes[written.len()..].iter().all(|b| *b == 0));
            }
        }
    }
}

//! Classifies pictures by their NAL units.

use crate::FrameClass;
use h264_reader::rbsp;
use std::{borrow::Cow, time::Duration};

/// Without an IDR picture or exact recovery point for this long, a gradual one counts as a key frame.
const PATIENCE: Duration = Duration::from_secs(10);

/// The maximum size of a stream's kept parameter sets, bytes.
const MAX_SETS: usize = 64 << 10;

/// The NAL units of a byte stream (ISO/IEC 14496-10, annex B), without start codes.
pub(crate) fn nal_units(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let finder = memchr::memmem::Finder::new(&[0, 0, 1]);
    let mut at = finder.find(bytes).map(|at| at + 3);
    std::iter::from_fn(move || {
        let rest = &bytes[at?..];
        let end = finder.find(rest);
        at = end.zip(at).map(|(end, start)| start + end + 3);
        Some(trim_zeros(&rest[..end.unwrap_or(rest.len())]))
    })
}

/// Removes zeros at the end, which belong to the next start code or are padding.
fn trim_zeros(nal: &[u8]) -> &[u8] {
    let end = nal.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    &nal[..end]
}

/// The payload of a NAL unit after its header, without emulation prevention bytes (7.4.1).
pub(crate) fn decode_payload(nal: &[u8], head: usize) -> Option<Cow<'_, [u8]>> {
    // The reader skips one header byte, and panics on empty input.
    let from = nal.get(head.checked_sub(1)?..).filter(|from| !from.is_empty())?;
    rbsp::decode_nal(from).ok()
}

/// The syntax of a stream's NAL units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    H264,
    H265,
}

/// What a NAL unit contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NalRole {
    Delimiter,
    /// A parameter set.
    Set {
        is_sequence: bool,
    },
    Other,
}

impl Syntax {
    /// The type of a NAL unit.
    pub(crate) fn kind(self, nal: &[u8]) -> u8 {
        let head = nal.first().copied().unwrap_or_default();
        match self {
            Self::H264 => head & 0x1f,
            Self::H265 => head >> 1 & 0x3f,
        }
    }

    pub(crate) fn role(self, nal: &[u8]) -> NalRole {
        match (self, self.kind(nal)) {
            (Self::H264, 9) | (Self::H265, 35) => NalRole::Delimiter,
            (Self::H264, kind @ (7 | 8 | 13 | 15)) => NalRole::Set { is_sequence: kind == 7 },
            (Self::H265, kind @ 32..=34) => NalRole::Set { is_sequence: kind == 33 },
            _ => NalRole::Other,
        }
    }
}

/// The classification of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Classification {
    pub(crate) class: FrameClass,
    pub(crate) has_delimiter: bool,
    pub(crate) has_parameter_sets: bool,
}

/// Classifies the units of one stream.
#[derive(Clone, Debug)]
pub(crate) struct PictureClassifier {
    syntax: Syntax,
    /// The time of the last IDR picture or exact recovery point.
    last_exact: Option<Duration>,
    first: Option<Duration>,
    /// The highest temporal sub-layer of H.265; `None` before a sequence parameter set.
    layers: Option<u8>,
    sets: Vec<u8>,
}

/// A slice of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slice {
    Key,
    Reference,
    Disposable,
}

impl PictureClassifier {
    pub(crate) fn new(syntax: Syntax) -> Self {
        Self { syntax, last_exact: None, first: None, layers: None, sets: Vec::new() }
    }

    /// The newest parameter sets, each after a start code; empty if there are none.
    pub(crate) fn parameter_sets(&self) -> &[u8] {
        &self.sets
    }

    /// Classifies the unit with this time.
    pub(crate) fn classify(&mut self, body: &[u8], time: Duration) -> Classification {
        let mut classified = Classification {
            class: FrameClass::Reference,
            has_delimiter: false,
            has_parameter_sets: false,
        };
        let (mut slices, mut recovery, mut sets) = (Vec::new(), None, Vec::new());
        for nal in nal_units(body) {
            match self.syntax.role(nal) {
                NalRole::Delimiter => classified.has_delimiter = true,
                NalRole::Set { is_sequence } => {
                    classified.has_parameter_sets |= is_sequence;
                    self.read_layers(nal, is_sequence);
                    sets.extend_from_slice(&[0, 0, 0, 1]);
                    sets.extend_from_slice(nal);
                }
                NalRole::Other => {
                    recovery = recovery.or_else(|| self.recovery_point(nal));
                    // Only the first slice and the kinds of the others matter.
                    slices.extend(self.classify_slice(nal).filter(|slice| !slices.contains(slice)));
                }
            }
        }
        if classified.has_parameter_sets && sets.len() <= MAX_SETS {
            self.sets = sets;
        }
        classified.class = self.decide_class(&slices, recovery, time);
        classified
    }

    fn decide_class(
        &mut self,
        slices: &[Slice],
        recovery: Option<u32>,
        time: Duration,
    ) -> FrameClass {
        let first = *self.first.get_or_insert(time);
        let last = self.last_exact.unwrap_or(first);
        let is_key = slices.first() == Some(&Slice::Key);
        let is_exact = is_key || recovery == Some(0) && !slices.is_empty();
        if is_exact {
            self.last_exact = Some(time);
            return FrameClass::Key;
        }
        let has_no_recent_key = self.last_exact.is_none() || time.saturating_sub(last) >= PATIENCE;
        if recovery.is_some() && !slices.is_empty() && has_no_recent_key {
            return FrameClass::Key;
        }
        let is_disposable =
            !slices.is_empty() && slices.iter().all(|slice| *slice == Slice::Disposable);
        if is_disposable { FrameClass::Disposable } else { FrameClass::Reference }
    }

    /// Classifies H.264 by type and `nal_ref_idc` (7.4.1), H.265 by type and sub-layer (ISO/IEC 23008-2, 7.4.2.2).
    fn classify_slice(&self, nal: &[u8]) -> Option<Slice> {
        let kind = self.syntax.kind(nal);
        match self.syntax {
            Syntax::H264 => match kind {
                5 => Some(Slice::Key),
                1..=4 if nal[0] & 0x60 == 0 => Some(Slice::Disposable),
                1..=4 => Some(Slice::Reference),
                _ => None,
            },
            Syntax::H265 => {
                let [first, second, ..] = nal else { return None };
                let is_base_layer = first & 1 == 0 && second >> 3 == 0;
                let sub_layer = (second & 7).saturating_sub(1);
                match kind {
                    _ if !is_base_layer => None,
                    16..=21 => Some(Slice::Key),
                    // Even types below 16: no picture of the same sub-layer refers to it, and there is no higher one.
                    0..16 if kind.is_multiple_of(2) && self.layers == Some(sub_layer) => {
                        Some(Slice::Disposable)
                    }
                    0..32 => Some(Slice::Reference),
                    _ => None,
                }
            }
        }
    }

    /// The number of pictures until the decoder has recovered, if the unit has a recovery point of H.264 (D.1.8).
    fn recovery_point(&self, nal: &[u8]) -> Option<u32> {
        if self.syntax != Syntax::H264 || self.syntax.kind(nal) != 6 {
            return None;
        }
        let payload = decode_payload(nal, 1)?;
        let mut rest = &payload[..];
        while rest.len() > 2 {
            let kind = read_sei_number(&mut rest)?;
            let length = read_sei_number(&mut rest)?;
            let (body, more) = rest.split_at_checked(length)?;
            if kind == 6 {
                let mut bits = rbsp::BitReader::new(body);
                return rbsp::BitRead::read_ue(&mut bits, "recovery_frame_cnt").ok();
            }
            rest = more;
        }
        None
    }

    fn read_layers(&mut self, nal: &[u8], is_sequence: bool) {
        if self.syntax == Syntax::H265
            && is_sequence
            && let Some(byte) = nal.get(2)
        {
            self.layers = Some(byte >> 1 & 7);
        }
    }
}

/// Reads the type or the size of an SEI message (7.3.2.3.1): bytes of 255 and a smaller last byte, which are added up.
fn read_sei_number(from: &mut &[u8]) -> Option<usize> {
    let mut number = 0;
    loop {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        number += usize::from(*byte);
        if *byte != 0xff {
            return Some(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FrameClass::{Disposable, Key, Reference};

    fn unit(nals: &[&[u8]]) -> Vec<u8> {
        nals.iter().flat_map(|nal| [&[0, 0, 0, 1], *nal].concat()).collect()
    }

    fn class(classifier: &mut PictureClassifier, seconds: u64, nals: &[&[u8]]) -> FrameClass {
        classifier.classify(&unit(nals), Duration::from_secs(seconds)).class
    }

    #[test]
    fn nal_units_are_found() {
        let units = |bytes| nal_units(bytes).collect::<Vec<_>>();
        assert_eq!(units(&[0, 0, 1, 5, 6, 0, 0, 0, 1, 7, 0, 0, 1]), [&[5, 6][..], &[7], &[]]);
        assert_eq!(units(&[9, 0, 0, 1, 5, 0]), [&[5]]);
        assert!(units(&[0, 0, 0, 2]).is_empty());
    }

    #[test]
    fn short_units_have_no_payload() {
        assert_eq!(decode_payload(&[], 1), None);
        assert_eq!(decode_payload(&[0x42], 2), None);
        assert_eq!(decode_payload(&[0x67], 1).as_deref(), Some(&[][..]));
        assert_eq!(decode_payload(&[0x42, 1, 0, 0, 3, 1], 2).as_deref(), Some(&[0, 0, 1][..]));
        assert_eq!(decode_payload(&[0x67, 0, 0, 0, 1], 1), None);
    }

    #[test]
    fn h264_is_classified_by_type_and_reference_flag() {
        let mut classifier = PictureClassifier::new(Syntax::H264);
        let (sps, pps, aud) = (&[0x67, 1, 2][..], &[0x68, 3][..], &[0x09, 0x10][..]);
        let all = classifier.classify(&unit(&[aud, sps, pps, &[0x65, 0x88]]), Duration::ZERO);
        assert_eq!(
            all,
            Classification { class: Key, has_delimiter: true, has_parameter_sets: true }
        );
        assert_eq!(classifier.parameter_sets(), unit(&[sps, pps]));
        assert_eq!(class(&mut classifier, 0, &[aud, &[0x41, 0x9a]]), Reference);
        assert_eq!(class(&mut classifier, 0, &[aud, &[0x01, 0x9e]]), Disposable);
        // Two fields, one of which is used.
        assert_eq!(class(&mut classifier, 0, &[&[0x01, 0x9e], &[0x21, 0x9e]]), Reference);
        // No picture at all, and two pictures in one unit.
        assert_eq!(class(&mut classifier, 0, &[aud, &[0x06, 1]]), Reference);
        assert_eq!(class(&mut classifier, 0, &[&[0x41, 0x9a], &[0x65, 0x88]]), Reference);
    }

    #[test]
    fn gradual_recovery_points_are_key_frames_only_without_better_ones() {
        // recovery_frame_cnt 0, in the second message of a unit, and 6.
        let exact = &[0x06, 5, 1, 9, 6, 1, 0xc4, 0x80][..];
        let gradual = &[0x06, 6, 1, 0x38, 0x80][..];
        let picture = &[0x41, 0x9a][..];
        let mut classifier = PictureClassifier::new(Syntax::H264);
        assert_eq!(class(&mut classifier, 0, &[gradual, picture]), Key);
        assert_eq!(class(&mut classifier, 1, &[exact, picture]), Key);
        assert_eq!(class(&mut classifier, 2, &[gradual, picture]), Reference);
        assert_eq!(class(&mut classifier, 12, &[gradual, picture]), Key);
        assert_eq!(class(&mut classifier, 13, &[gradual]), Reference);
        assert_eq!(class(&mut classifier, 13, &[&[0x06, 6, 200, 1], picture]), Reference);
    }

    #[test]
    fn h265_is_classified_by_type_and_sub_layer() {
        let nal = |kind: u8, layer: u8| [kind << 1, layer + 1, 0x80];
        let mut classifier = PictureClassifier::new(Syntax::H265);
        // No picture is disposable before the number of sub-layers is known.
        assert_eq!(class(&mut classifier, 0, &[&nal(0, 0)]), Reference);
        let sequence = [33 << 1, 1, 0x03, 0x01];
        for kind in 16..=21 {
            assert_eq!(class(&mut classifier, 0, &[&sequence, &nal(kind, 0)]), Key);
        }
        assert_eq!(class(&mut classifier, 0, &[&nal(1, 0)]), Reference);
        assert_eq!(class(&mut classifier, 0, &[&nal(0, 0)]), Reference);
        assert_eq!(class(&mut classifier, 0, &[&nal(0, 1)]), Disposable);
        assert_eq!(class(&mut classifier, 0, &[&nal(8, 1)]), Disposable);
        assert_eq!(class(&mut classifier, 0, &[&nal(9, 1)]), Reference);
        // Slices of other layers are ignored.
        assert_eq!(class(&mut classifier, 0, &[&nal(0, 1), &[1 << 1, 0x0a]]), Disposable);
    }
}

//! Symbols cut lengthwise for the crate, which takes at most 65,535 bytes.

use raptorq::ObjectTransmissionInformation;
use std::ops::Range;

/// The widest stripe: the largest power of two that the crate takes.
const MAX_STRIPE: usize = 1 << 15;

/// The parts of a symbol of this many bytes that are coded on their own.
pub(super) fn stripes(symbol_bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let width = symbol_bytes.min(MAX_STRIPE);
    (0..symbol_bytes / width).map(move |at| at * width..(at + 1) * width)
}

/// The crate's description of one block of one stripe; `source_symbols` is at most 56,403,
/// which bounds every product here.
pub(super) fn description(source_symbols: u32, width: usize) -> ObjectTransmissionInformation {
    let width = u16::try_from(width).unwrap_or(u16::MAX);
    let length = u64::from(source_symbols) * u64::from(width);
    ObjectTransmissionInformation::new(length, width, 1, 1, 8)
}

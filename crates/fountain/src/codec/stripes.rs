//! Symbols cut lengthwise into stripes that are coded on their own.
//!
//! The code works on each byte column alone, so nothing changes but the memory, and the speed where a
//! stripe stays in the cache and a block does not; and symbols of 64 KiB are wider than the crate takes.

use raptorq::ObjectTransmissionInformation;
use std::ops::Range;

/// The widest stripe: the largest power of two that the crate takes (65,535 bytes).
const MAX_WIDTH: usize = 1 << 15;

/// The narrowest: below, work on each symbol costs more than its bytes.
const MIN_WIDTH: usize = 1 << 12;

/// Bytes of a stripe over all symbols of a block, when encoding: with the intermediate
/// symbols it about fills a core's second-level cache.
pub(super) const ENCODE_BYTES: usize = 2 << 20;

/// As [`ENCODE_BYTES`], when decoding. Each stripe solves the system anew, which takes 0.6 ms for
/// 512 symbols; so stripes are wider than a cache, and still a block is in memory once and a half
/// instead of three times.
pub(super) const DECODE_BYTES: usize = 4 << 20;

/// The stripes of symbols of this many bytes (a power of two), if about `stripe_bytes` of
/// a block of so many source symbols are to be coded at once.
pub(super) fn stripes(
    symbol_bytes: usize,
    source_symbols: u32,
    stripe_bytes: usize,
) -> impl Iterator<Item = Range<usize>> {
    let wanted = stripe_bytes / (source_symbols.max(1) as usize).next_power_of_two();
    let width = wanted.clamp(MIN_WIDTH, MAX_WIDTH).min(symbol_bytes);
    (0..symbol_bytes / width).map(move |at| at * width..(at + 1) * width)
}

/// The crate's description of one block of one stripe; `source_symbols` is at most 56,403,
/// which bounds every product here.
pub(super) fn description(source_symbols: u32, width: usize) -> ObjectTransmissionInformation {
    let width = u16::try_from(width).unwrap_or(u16::MAX);
    let length = u64::from(source_symbols) * u64::from(width);
    ObjectTransmissionInformation::new(length, width, 1, 1, 8)
}

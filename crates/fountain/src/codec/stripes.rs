//! Symbols divided lengthwise into stripes that are coded separately.
//!
//! The code works on each byte column separately, so the result is the same. Stripes need less memory, and are faster
//! where a stripe fits into the cache and a block does not. Symbols of 64 KiB need them, because they are wider than
//! the crate `raptorq` allows.

use raptorq::ObjectTransmissionInformation;
use std::ops::Range;

/// The maximum width: the largest power of two that the crate allows (65,535 bytes).
const MAX_WIDTH: usize = 1 << 15;

/// The minimum width: below it, the work per symbol costs more than the work on its bytes.
const MIN_WIDTH: usize = 1 << 12;

/// The size of a stripe over all symbols of a block when encoding: with the intermediate symbols it about fills a
/// core's second-level cache.
pub(super) const ENCODE_BYTES: usize = 2 << 20;

/// The same when decoding. Each stripe solves the system anew, which takes 0.6 ms for 512 symbols. So stripes are
/// larger than a cache, but a block is in memory one and a half times instead of three times.
pub(super) const DECODE_BYTES: usize = 4 << 20;

/// The stripes of symbols of this many bytes (a power of two), if about `stripe_bytes` of a block of this many source
/// symbols are to be coded at once.
pub(super) fn stripes(
    symbol_bytes: usize,
    source_symbols: u32,
    stripe_bytes: usize,
) -> impl Iterator<Item = Range<usize>> {
    let wanted = stripe_bytes / (source_symbols.max(1) as usize).next_power_of_two();
    let width = wanted.clamp(MIN_WIDTH, MAX_WIDTH).min(symbol_bytes);
    (0..symbol_bytes / width).map(move |at| at * width..(at + 1) * width)
}

/// The crate's description of one stripe of a block; `source_symbols` is at most 56,403, which bounds every product
/// here.
pub(super) fn description(source_symbols: u32, width: usize) -> ObjectTransmissionInformation {
    let width = u16::try_from(width).unwrap_or(u16::MAX);
    let length = u64::from(source_symbols) * u64::from(width);
    ObjectTransmissionInformation::new(length, width, 1, 1, 8)
}

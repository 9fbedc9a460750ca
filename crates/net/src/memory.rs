//! Memory that the allocator keeps after a peak.
#![cfg_attr(
    all(target_os = "linux", target_env = "gnu"),
    expect(unsafe_code, reason = "mallinfo2 and malloc_trim are C functions")
)]

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What the allocator may keep: what it takes anew for each request is slow to get.
const KEPT: usize = 32 << 20;

/// Memory of this process in RAM when some was given back the last time; less, if it has shrunk since.
static LEFT: AtomicUsize = AtomicUsize::new(0);

/// Gives free memory back to the system if the allocator keeps much, and more than the last time; how much it kept. What was
/// given back still counts as free in its areas. Takes some milliseconds for each hundred megabytes: not for a thread of the
/// runtime.
pub fn give_back() -> Option<usize> {
    let (kept, resident) = (kept(), resident());
    let left = LEFT.load(Relaxed).min(resident);
    LEFT.store(left, Relaxed);
    if kept <= KEPT || resident <= left.saturating_add(KEPT) {
        return None;
    }
    trim();
    LEFT.store(self::resident(), Relaxed);
    Some(kept)
}

/// Memory of this process in RAM.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0).saturating_mul(rustix::param::page_size())
}

/// Bytes that are free in the allocator's own areas.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn kept() -> usize {
    // SAFETY: it takes the allocator's own locks, reads its counts and returns them by value.
    unsafe { libc::mallinfo2() }.fordblks
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn trim() {
    // SAFETY: it takes the allocator's own locks, and gives back pages that hold nothing.
    _ = unsafe { libc::malloc_trim(0) };
}

/// Other allocators give back by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn kept() -> usize {
    0
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim() {}

#[cfg(test)]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_back_after_a_peak() {
        // Small enough for the allocator's own areas; the last one stays, so that none of these ends free.
        let mut all: Vec<Vec<u8>> = (0..4096).map(|_| vec![1; 32 << 10]).collect();
        let (peak, last) = (resident(), all.pop());
        drop(all);
        let kept = give_back();
        assert!(kept.is_some_and(|kept| kept > 64 << 20), "{kept:?}");
        assert!(resident() + (64 << 20) < peak, "{} of {peak}", resident());
        assert!(last.is_some());
        // The same again: nothing more is there to be given.
        assert_eq!(give_back(), None);
    }
}

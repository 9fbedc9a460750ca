//! Returns free memory of the allocator to the system after a peak.
#![cfg_attr(
    all(target_os = "linux", target_env = "gnu"),
    expect(unsafe_code, reason = "mallinfo2 and malloc_trim are C functions")
)]

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The free memory that the allocator may keep, because getting it anew for each request is slow.
const MAX_KEPT: usize = 32 << 20;

/// The free bytes that the allocator counted after the last call of [`trim`], or fewer if that number has shrunk since.
/// The allocator's count includes returned memory.
static LEFT: AtomicUsize = AtomicUsize::new(0);

/// Returns free memory to the system if the allocator has much more of it than after the last call. Returns the number
/// of free bytes that it had. Takes some milliseconds for each hundred megabytes, so it must not run on a thread of the
/// runtime.
pub fn give_back() -> Option<usize> {
    let kept = kept();
    let left = LEFT.load(Relaxed).min(kept);
    LEFT.store(left, Relaxed);
    if kept <= left.saturating_add(MAX_KEPT) {
        return None;
    }
    trim();
    LEFT.store(self::kept(), Relaxed);
    Some(kept)
}

/// Free bytes in the allocator's heaps.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn kept() -> usize {
    // SAFETY: takes the allocator's locks, reads its counters and returns them by value.
    unsafe { libc::mallinfo2() }.fordblks
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn trim() {
    // SAFETY: takes the allocator's locks and returns only free pages.
    _ = unsafe { libc::malloc_trim(0) };
}

/// Other allocators return memory themselves.
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

    fn resident() -> usize {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
        pages * rustix::param::page_size()
    }

    #[test]
    fn free_memory_is_returned_after_a_peak() {
        // Blocks below the `mmap` threshold; the last one stays allocated, so that the heap cannot shrink from its end.
        let mut all: Vec<Vec<u8>> = (0..12_288).map(|_| vec![1; 32 << 10]).collect();
        let (peak, last) = (resident(), all.pop());
        // A call in the middle of the peak, when a part is free, does not prevent the return of the rest later.
        all.truncate(8192);
        let kept = give_back();
        assert!(kept.is_some_and(|kept| kept > 64 << 20), "{kept:?}");
        drop(all);
        let kept = give_back();
        assert!(kept.is_some_and(|kept| kept > 192 << 20), "{kept:?}");
        assert!(resident() + (256 << 20) < peak, "{} of {peak}", resident());
        assert!(last.is_some());
        // Called again, there is nothing to return.
        assert_eq!(give_back(), None);
    }
}

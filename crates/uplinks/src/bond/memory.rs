//! Memory budgets for the streams of bonds, so that neither many streams nor one hostile peer take all memory.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// A budget of bytes; cheap to clone.
#[derive(Clone, Debug)]
pub struct Memory(Arc<MemoryBudget>);

#[derive(Debug)]
struct MemoryBudget {
    used: AtomicU64,
    most: u64,
    /// The budget that this one is a part of.
    whole: Option<Memory>,
}

impl Memory {
    /// A budget of `most` bytes.
    pub fn new(most: u64) -> Self {
        Self(Arc::new(MemoryBudget { used: AtomicU64::new(0), most, whole: None }))
    }

    /// A part of this budget: at most `most` bytes, and no more than are left of the whole.
    #[must_use]
    pub fn part(&self, most: u64) -> Self {
        Self(Arc::new(MemoryBudget { used: AtomicU64::new(0), most, whole: Some(self.clone()) }))
    }

    /// The bytes that leases hold now.
    pub fn used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Takes this many bytes, or none.
    pub fn take(&self, bytes: u64) -> Option<MemoryLease> {
        let mut held = MemoryLease { memory: self.clone(), bytes: 0 };
        held.grow(bytes).then_some(held)
    }

    fn try_take(&self, bytes: u64) -> bool {
        let fits = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.0.most);
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        if self.0.used.fetch_update(set, get, fits).is_err() {
            return false;
        }
        let taken = self.0.whole.as_ref().is_none_or(|whole| whole.try_take(bytes));
        if !taken {
            self.0.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        taken
    }

    fn give_back(&self, bytes: u64) {
        self.0.used.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(whole) = &self.0.whole {
            whole.give_back(bytes);
        }
    }
}

/// Bytes taken from a budget; dropping them gives them back.
#[derive(Debug)]
pub struct MemoryLease {
    memory: Memory,
    bytes: u64,
}

impl MemoryLease {
    /// Takes this many bytes more, or none; returns whether it did.
    pub fn grow(&mut self, bytes: u64) -> bool {
        let grown = self.memory.try_take(bytes);
        self.bytes += if grown { bytes } else { 0 };
        grown
    }
}

impl Drop for MemoryLease {
    fn drop(&mut self) {
        self.memory.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_takes_from_the_whole_and_gives_back() {
        let whole = Memory::new(100);
        let (one, two) = (whole.part(60), whole.part(60));
        let mut held = one.take(50).unwrap();
        assert!(one.take(20).is_none() && !held.grow(20) && held.grow(10));
        assert!(two.take(50).is_none());
        assert_eq!((one.used(), two.used(), whole.used()), (60, 0, 60));
        let other = two.take(40).unwrap();
        drop(held);
        assert_eq!(whole.used(), 40);
        drop(other);
        assert_eq!((one.used(), two.used(), whole.used()), (0, 0, 0));
    }
}

//! Protection against replayed datagrams (RFC 6479): a window that slides with the highest number.

/// The window's length. Numbers this far below the highest are still told apart; older ones are refused.
const WINDOW: u64 = 8192;

/// Which of the last numbers were received.
#[derive(Clone, Debug)]
pub struct ReplayWindow {
    highest: Option<u64>,
    words: Vec<u64>,
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self { highest: None, words: vec![0; (WINDOW / 64) as usize] }
    }
}

impl ReplayWindow {
    /// Whether this number has not been received yet.
    pub fn is_new(&self, number: u64) -> bool {
        match self.highest {
            None => true,
            Some(highest) if number > highest => true,
            Some(highest) => highest - number < WINDOW && !self.has(number),
        }
    }

    /// Records a number as received. Call it only for authenticated datagrams, because others must not move the window.
    pub fn note(&mut self, number: u64) {
        if self.highest.is_none_or(|highest| number > highest) {
            let from = self.highest.map_or(number, |highest| highest + 1);
            // Clears the bits of numbers that leave the window, for reuse by new ones.
            (from.max(number.saturating_sub(WINDOW - 1))..=number).for_each(|n| self.set(n, false));
            self.highest = Some(number);
        }
        self.set(number, true);
    }

    fn has(&self, number: u64) -> bool {
        let at = number % WINDOW;
        self.words[(at / 64) as usize] >> (at % 64) & 1 == 1
    }

    fn set(&mut self, number: u64, to: bool) {
        let at = number % WINDOW;
        let word = &mut self.words[(at / 64) as usize];
        *word = *word & !(1 << (at % 64)) | u64::from(to) << (at % 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn old_numbers_are_refused_and_a_leap_clears_the_window() {
        let mut window = ReplayWindow::default();
        window.note(5);
        assert!(!window.is_new(5) && window.is_new(4) && window.is_new(6));
        window.note(5 + WINDOW);
        assert!(!window.is_new(5) && window.is_new(6) && !window.is_new(5 + WINDOW));
        window.note(u64::MAX);
        assert!(!window.is_new(u64::MAX) && window.is_new(u64::MAX - 1) && !window.is_new(5));
        window.note(u64::MAX - 1);
        assert!(!window.is_new(u64::MAX - 1));
    }

    proptest! {
        #[test]
        fn no_number_is_accepted_twice(numbers in proptest::collection::vec(0..30_000_u64, 1..3000)) {
            let (mut window, mut seen) = (ReplayWindow::default(), BTreeSet::new());
            let mut highest = 0;
            for number in numbers {
                let is_new = window.is_new(number);
                prop_assert!(!is_new || !seen.contains(&number));
                prop_assert!(is_new || seen.contains(&number) || number + WINDOW <= highest);
                if is_new {
                    window.note(number);
                    seen.insert(number);
                    highest = highest.max(number);
                }
            }
        }
    }
}

//! When a download's last byte came, as far as its reports tell.

use std::time::{Duration, Instant};

/// The latest moment at which a byte may have come. A report, every quarter of a second,
/// says whether bytes came since the one before: it bounds the moment from above.
#[derive(Debug, Clone, Copy)]
pub struct Tail {
    last_byte: Instant,
    /// No bytes came in the time of the latest report.
    dry: bool,
}

impl Tail {
    /// Nothing has come by `begun`.
    pub fn new(begun: Instant) -> Self {
        Self { last_byte: begun, dry: false }
    }

    /// A report, read at `now`.
    pub fn counts(&mut self, any: bool, now: Instant) {
        self.dry = !any;
        if any {
            self.last_byte = now;
        }
    }

    /// The program has ended: what came after its last report it did not tell any more.
    pub fn ends(&mut self, now: Instant) {
        if !self.dry {
            self.last_byte = now;
        }
    }

    /// No byte came after this.
    pub fn last_byte(&self) -> Instant {
        self.last_byte
    }

    /// How long nothing has come, counted from `since` on.
    pub fn silent_since(&self, since: Instant, now: Instant) -> Duration {
        now.saturating_duration_since(self.last_byte.max(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_byte_is_dated_no_earlier_than_it_may_have_come() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut tail = Tail::new(begun);
        tail.counts(true, at(250));
        tail.counts(true, at(500));
        assert_eq!(tail.last_byte(), at(500));
        // A program that ends between two reports may have got something after the first.
        let mut ended = tail;
        ended.ends(at(600));
        assert_eq!(ended.last_byte(), at(600));
        tail.counts(false, at(750));
        tail.ends(at(900));
        assert_eq!(tail.last_byte(), at(500));
        assert_eq!(tail.silent_since(at(300), at(900)), Duration::from_millis(400));
        assert_eq!(tail.silent_since(at(800), at(900)), Duration::from_millis(100));
    }
}

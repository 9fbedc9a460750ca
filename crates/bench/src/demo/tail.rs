//! Bounds the time of a download's last byte by its progress reports.

use std::time::{Duration, Instant};

/// The latest moment at which a byte may have arrived. A report, every quarter of a second, says whether bytes arrived
/// since the report before, so its time is an upper bound.
#[derive(Debug, Clone, Copy)]
pub struct LastByteTime {
    last_byte: Instant,
    /// No bytes arrived in the interval of the latest report.
    dry: bool,
}

impl LastByteTime {
    /// Creates the state of a download that starts at `begun` and has no bytes yet.
    pub fn new(begun: Instant) -> Self {
        Self { last_byte: begun, dry: false }
    }

    /// Records a report that was read at `now`; `any`: bytes arrived in its interval.
    pub fn record_report(&mut self, any: bool, now: Instant) {
        self.dry = !any;
        if any {
            self.last_byte = now;
        }
    }

    /// Records the program's end. Bytes may have arrived after its last report.
    pub fn record_end(&mut self, now: Instant) {
        if !self.dry {
            self.last_byte = now;
        }
    }

    /// The latest moment at which a byte may have arrived.
    pub fn last_byte(&self) -> Instant {
        self.last_byte
    }

    /// How long no byte has arrived, counted from `since` on.
    pub fn silent_since(&self, since: Instant, now: Instant) -> Duration {
        now.saturating_duration_since(self.last_byte.max(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_the_last_byte_is_an_upper_bound() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut tail = LastByteTime::new(begun);
        tail.record_report(true, at(250));
        tail.record_report(true, at(500));
        assert_eq!(tail.last_byte(), at(500));
        // A program that ends between two reports may have received bytes after the first.
        let mut ended = tail;
        ended.record_end(at(600));
        assert_eq!(ended.last_byte(), at(600));
        tail.record_report(false, at(750));
        tail.record_end(at(900));
        assert_eq!(tail.last_byte(), at(500));
        assert_eq!(tail.silent_since(at(300), at(900)), Duration::from_millis(400));
        assert_eq!(tail.silent_since(at(800), at(900)), Duration::from_millis(100));
    }
}

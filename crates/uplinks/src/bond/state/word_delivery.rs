//! Whether the control words that were sent by a link have arrived.
//!
//! Words are not acknowledged. A link that falls silent right after a word may owe nothing else, and what arrives by
//! the link says nothing about the way there. The answer to a question proves everything that was sent before the
//! question.

use std::time::Duration;
use thalweg_units::Time;

/// How long after a word a question is asked.
const PROVEN: Duration = Duration::from_millis(500);

/// Words without proof for this long are sent again, by other links if there are any.
const UNPROVEN: Duration = Duration::from_secs(2);

/// The words of one link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WordDelivery {
    /// Since when a word is unproven.
    since: Option<Time>,
    /// When the last word was sent.
    last: Time,
    /// Words had to be sent again: other links are preferred.
    pub is_doubted: bool,
}

impl WordDelivery {
    /// A word was sent.
    pub fn record_sent(&mut self, now: Time) {
        self.since.get_or_insert(now);
        self.last = now;
    }

    /// The far end answered the question that was asked at `asked`.
    pub fn record_answer(&mut self, asked: Time) {
        self.is_doubted = false;
        self.since = self.since.filter(|_| asked < self.last).map(|since| since.max(asked));
    }

    /// Whether a question is due.
    pub fn need_proof(&self, now: Time) -> bool {
        self.are_older(PROVEN, now)
    }

    /// Whether the words must be sent again; true only once for the same words.
    pub fn are_lost(&mut self, now: Time) -> bool {
        let are_lost = self.are_older(UNPROVEN, now);
        if are_lost {
            (self.since, self.is_doubted) = (None, true);
        }
        are_lost
    }

    fn are_older(&self, than: Duration, now: Time) -> bool {
        self.since.is_some_and(|since| now.since(since) >= than)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn an_answer_proves_the_words_before_its_question() {
        let mut words = WordDelivery::default();
        assert!(!words.need_proof(at(9000)) && !words.are_lost(at(9000)));
        words.record_sent(at(0));
        assert!(!words.need_proof(at(499)) && words.need_proof(at(500)));
        words.record_sent(at(600));
        // Asked between the two: the second one is not proven.
        words.record_answer(at(550));
        assert!(!words.need_proof(at(1049)) && words.need_proof(at(1050)));
        words.record_answer(at(600));
        assert!(!words.need_proof(at(9000)));
    }

    #[test]
    fn words_without_an_answer_are_lost_once_and_the_link_is_in_doubt_until_it_answers() {
        let mut words = WordDelivery::default();
        words.record_sent(at(0));
        words.record_sent(at(1900));
        assert!(!words.are_lost(at(1999)) && words.are_lost(at(2000)) && !words.are_lost(at(9000)));
        assert!(words.is_doubted);
        words.record_answer(at(9000));
        assert!(!words.is_doubted);
    }
}

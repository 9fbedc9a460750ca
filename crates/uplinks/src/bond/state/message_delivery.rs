//! Whether the control messages that were sent over a link have arrived.
//!
//! Control messages are not acknowledged. If a link falls silent right after one, nothing else may be outstanding on
//! it, and data that arrives over the link does not show that the other direction works. A pong proves that everything
//! sent before its ping has arrived.

use std::time::Duration;
use thalweg_units::Time;

/// A ping is sent this long after a message.
const PROVEN: Duration = Duration::from_millis(500);

/// Messages without proof for this long are sent again, over other links if there are any.
const UNPROVEN: Duration = Duration::from_secs(2);

/// The control messages of one link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MessageDelivery {
    /// Since when a message is unproven.
    since: Option<Time>,
    /// When the last message was sent.
    last: Time,
    /// Whether messages had to be sent again: other links are preferred.
    pub is_doubted: bool,
}

impl MessageDelivery {
    /// Records that a message was sent.
    pub fn record_sent(&mut self, now: Time) {
        self.since.get_or_insert(now);
        self.last = now;
    }

    /// Records the pong for the ping that was sent at `asked`.
    pub fn record_answer(&mut self, asked: Time) {
        self.is_doubted = false;
        self.since = self.since.filter(|_| asked < self.last).map(|since| since.max(asked));
    }

    /// Whether a ping is due.
    pub fn need_proof(&self, now: Time) -> bool {
        self.are_older(PROVEN, now)
    }

    /// Whether the messages must be sent again; true only once for the same messages.
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
    fn a_pong_proves_the_messages_before_its_ping() {
        let mut messages = MessageDelivery::default();
        assert!(!messages.need_proof(at(9000)) && !messages.are_lost(at(9000)));
        messages.record_sent(at(0));
        assert!(!messages.need_proof(at(499)) && messages.need_proof(at(500)));
        messages.record_sent(at(600));
        // Asked between the two: the second one is not proven.
        messages.record_answer(at(550));
        assert!(!messages.need_proof(at(1049)) && messages.need_proof(at(1050)));
        messages.record_answer(at(600));
        assert!(!messages.need_proof(at(9000)));
    }

    #[test]
    fn messages_without_an_answer_are_lost_once_and_the_link_is_in_doubt_until_it_answers() {
        let mut messages = MessageDelivery::default();
        messages.record_sent(at(0));
        messages.record_sent(at(1900));
        assert!(
            !messages.are_lost(at(1999))
                && messages.are_lost(at(2000))
                && !messages.are_lost(at(9000))
        );
        assert!(messages.is_doubted);
        messages.record_answer(at(9000));
        assert!(!messages.is_doubted);
    }
}

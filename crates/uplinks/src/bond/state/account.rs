//! What a bond waits for, in words.

use super::{LinkState, State};
use crate::bond::flow::Flow;
use std::{fmt::Write as _, time::Duration};
use thalweg_units::Time;

impl State {
    /// A line for each link and each stream.
    pub fn account(&self, now: Time) -> String {
        let mut text = String::new();
        for (id, link) in &self.links {
            _ = writeln!(text, "link {}: {}", id.0, link.account(now));
        }
        for (stream, flow) in &self.flows {
            _ = writeln!(text, "stream {stream}: {}", flow.account());
        }
        text
    }
}

impl LinkState {
    fn account(&self, now: Time) -> String {
        let info = self.reading.info();
        let life = self.liveness.state(Duration::ZERO, now);
        let silent = if self.is_silent { "silent" } else { "in use" };
        let writer = match (self.is_idle, &self.work) {
            (true, _) => "idle",
            (false, Some(_)) => "given work",
            (false, None) => "at work",
        };
        format!(
            "{silent}, {life:?}, writer {writer}, {} words of its own, {} of {} bytes acknowledged, {} \
             came, asked {:?} ago; TCP holds {} unsent, {} unacknowledged",
            self.own.len(),
            self.acknowledged,
            self.sent,
            self.received,
            now.since(self.asked),
            info.unsent,
            info.unacknowledged,
        )
    }
}

impl Flow {
    fn account(&self) -> String {
        let sender = &self.sender;
        let due = &self.due;
        format!(
            "{} of {} bytes arrived there, {} wait, window {}; {} came in order; due {due:?}",
            sender.arrived(),
            sender.written(),
            sender.backlog(),
            sender.window(),
            self.received(),
        )
    }
}

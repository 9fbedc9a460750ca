//! Streams that are over: words about them may still be on their way, or have been lost with a link.

use super::State;
use crate::bond::flow::Flow;
use thalweg_bond::LinkId;
use thalweg_wire::bond::Word;

/// Streams that ended and are still answered for. Of more the oldest is not answered for any
/// longer.
const REMEMBERED: usize = 1024;

/// Answers that wait for a link to take them, at most. Further ones are dropped: an end that
/// gets no answer asks again.
const MOST_ANSWERS: usize = 64;

/// How a stream ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Past {
    /// Well, after so many bytes were received.
    Whole(u64),
    Broken,
}

impl State {
    /// The far end does not know how a stream ended: it hears so again.
    pub(super) fn answer_for_past(&mut self, by: LinkId, stream: u32) {
        let past = self.past.iter().find(|(past, _)| *past == stream).map(|(_, past)| *past);
        let (Some(past), Some(link)) = (past, self.links.get_mut(&by)) else { return };
        let answer = match past {
            Past::Whole(length) => {
                let (arrived, limit, ranges) = (length, length, Vec::new());
                Word::Acks { stream, arrived, limit, ranges, ended: true }
            }
            Past::Broken => Word::Reset { stream, why: "it broke before".to_owned() },
        };
        if link.own.len() < MOST_ANSWERS && !link.own.contains(&answer) {
            link.own.push_back(answer);
        }
    }

    /// The same for words that a stream that ended well needs no answer to.
    pub(super) fn answer_for_broken(&mut self, by: LinkId, stream: u32) {
        if self.past.iter().any(|(past, how)| *past == stream && matches!(how, Past::Broken)) {
            self.answer_for_past(by, stream);
        }
    }

    /// Of streams that are over is remembered how they ended.
    pub fn bury(&mut self) {
        let over = self.flows.iter().filter(|(_, flow)| flow.is_over());
        let past = |flow: &Flow| match flow.broken {
            Some(_) => Past::Broken,
            None => Past::Whole(flow.received()),
        };
        let over: Vec<_> = over.map(|(stream, flow)| (*stream, past(flow))).collect();
        for (stream, past) in over {
            self.flows.remove(&stream);
            self.past.push_back((stream, past));
        }
        while self.past.len() > REMEMBERED {
            self.past.pop_front();
        }
    }
}

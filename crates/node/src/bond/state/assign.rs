//! Who gets what to carry.

use super::{LinkState, State};
use crate::bond::flow::Flow;
use thalweg_bond::{
    Chunk, Link, LinkId, Verdict,
    stripe::{Crowd, Load},
};
use thalweg_units::Time;
use thalweg_wire::bond::{ChunkHead, Frame, Word};

/// So many streams are asked in a row whether a link that is idle should carry their next chunk.
const MOST_ASKED: usize = 8;

impl State {
    /// Gives idle links something to carry, as long as there is something that should go now.
    pub fn dispatch(&mut self, now: Time) {
        for link in self.links.values_mut().filter(|link| link.is_idle) {
            if let Some(word) = link.own.pop_front() {
                link.carry(Frame::word(&word), 0);
                link.liveness.sent(now);
            }
        }
        while self.links.values().any(|link| link.is_idle) {
            if !(self.give_word(now) || self.give_chunk(now)) {
                break;
            }
        }
    }

    /// The links as the scheduler sees them.
    fn view(&mut self, now: Time) -> Vec<Link> {
        self.links.iter_mut().map(|(id, link)| link.seen(*id, now)).collect()
    }

    /// A word that is no link's own goes by the idle link with the shortest round trip.
    fn give_word(&mut self, now: Time) -> bool {
        let idle = self.links.iter().filter(|(_, link)| link.is_idle && !link.is_silent);
        let rank = |link: &LinkState| (link.words.is_doubted, link.round_trip());
        let best = idle.min_by_key(|(_, link)| rank(link)).map(|(id, _)| *id);
        let Some(best) = best else { return false };
        let gone = self.broken_links.pop_front().map(|link| Word::Gone { link: link.0 });
        let word =
            gone.or_else(|| self.flows.iter_mut().find_map(|(stream, flow)| flow.word(*stream)));
        let (Some(word), Some(link)) = (word, self.links.get_mut(&best)) else { return false };
        link.carry(Frame::word(&word), 0);
        link.liveness.sent(now);
        link.words.went(now);
        true
    }

    /// The next chunk of the next stream that has one; else a second copy of one that is late.
    fn give_chunk(&mut self, now: Time) -> bool {
        let links = self.view(now);
        let crowd = crowd(self.flows.values());
        let after = self.flows.range(self.turn + 1..).chain(self.flows.range(..=self.turn));
        let waiting = after
            .filter(|(_, flow)| flow.broken.is_none())
            .filter_map(|(stream, flow)| Some((*stream, flow, flow.sender.next()?)));
        let mut has_any = false;
        // One that waits for a better link holds up none that need not.
        for (stream, flow, chunk) in waiting.take(MOST_ASKED) {
            has_any = true;
            let load = Load {
                chunk: chunk.length.into(),
                backlog: flow.expects(),
                window: flow.sender.window(),
            };
            if let Verdict::Send(id) = self.scheduler.next(&links, crowd.load(load)) {
                return self.give(stream, chunk, &links, id, now);
            }
        }
        !has_any && self.give_second(&links, now)
    }

    fn give_second(&mut self, links: &[Link], now: Time) -> bool {
        let idle = links.iter().filter(|link| link.writable && link.usable);
        let found = idle.flat_map(|link| self.flows.iter().map(move |flow| (link, flow)));
        let found = found.into_iter().find_map(|(link, (stream, flow))| {
            let chunk = flow.sender.second(link, now).filter(|_| flow.broken.is_none())?;
            Some((*stream, chunk, link.id))
        });
        found.is_some_and(|(stream, chunk, id)| self.give(stream, chunk, links, id, now))
    }

    fn give(&mut self, stream: u32, chunk: Chunk, links: &[Link], id: LinkId, now: Time) -> bool {
        let seen = links.iter().find(|link| link.id == id);
        let (Some(flow), Some(link), Some(seen)) =
            (self.flows.get_mut(&stream), self.links.get_mut(&id), seen)
        else {
            return false;
        };
        let head = ChunkHead { stream, offset: chunk.offset, length: chunk.length };
        let mut frame = Vec::with_capacity(32 + chunk.length as usize);
        frame.extend(Frame::Chunk(head).encode());
        flow.copy(chunk, &mut frame);
        flow.assigned(chunk, seen, now);
        link.carry(frame, chunk.length.into());
        link.liveness.sent(now);
        self.turn = stream;
        true
    }
}

/// The streams that have something to send.
fn crowd<'a>(flows: impl Iterator<Item = &'a Flow>) -> Crowd {
    let mut crowd = Crowd::default();
    let waiting = flows.filter(|flow| flow.broken.is_none() && flow.sender.backlog() > 0);
    waiting.for_each(|flow| crowd.add(flow.expects(), flow.sender.window()));
    crowd
}

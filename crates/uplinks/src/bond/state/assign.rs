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

    /// The next chunk of the next stream that has one for an idle link; else a second copy of one that is late, of a
    /// stream that has nothing new.
    fn give_chunk(&mut self, now: Time) -> bool {
        let links = self.view(now);
        let crowd = crowd(self.flows.values());
        let after = self.flows.range(self.turn + 1..).chain(self.flows.range(..=self.turn));
        let waiting =
            after.filter(|(_, flow)| flow.broken.is_none()).filter_map(|(stream, flow)| {
                let chunk = flow.sender.next()?;
                Some((*stream, chunk))
            });
        // One that waits for a better link holds up none that need not.
        for (stream, chunk) in waiting.take(MOST_ASKED).collect::<Vec<_>>() {
            let Some(flow) = self.flows.get_mut(&stream) else { continue };
            let load = Load {
                chunk: chunk.length.into(),
                backlog: flow.expects(),
                window: flow.sender.window(),
                waits: flow.waits,
            };
            let verdict = self.scheduler.next(&links, crowd.load(load));
            flow.waits = verdict.waits(flow.waits);
            if let Verdict::Send(id) = verdict {
                return self.give(stream, chunk, &links, id, now);
            }
        }
        // A link that nobody's next chunk goes to is free for what is late.
        self.give_second(&links, now)
    }

    fn give_second(&mut self, links: &[Link], now: Time) -> bool {
        let idle = links.iter().filter(|link| link.writable && link.usable);
        let found = idle.flat_map(|link| self.flows.iter().map(move |flow| (link, flow)));
        let found = found.into_iter().find_map(|(link, (stream, flow))| {
            let chunk = flow.sender.second(link, now).filter(|_| flow.broken.is_none())?;
            Some((*stream, chunk, link.id))
        });
        let Some((stream, chunk, id)) = found else { return false };
        let is_given = self.give(stream, chunk, links, id, now);
        if let Some(link) = self.links.get_mut(&id).filter(|_| is_given) {
            link.twice += u64::from(chunk.length);
        }
        is_given
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bond::{
        gauge::Gauge,
        memory::Memory,
        state::{Joining, Settings},
    };
    use std::{
        os::fd::AsFd as _,
        sync::Arc,
        task::{Context, Poll, Waker},
        time::Duration,
    };
    use thalweg_bond::StripeMethod;
    use thalweg_wire::bond::{FRAME_HEAD, Target};
    use tokio::net::{TcpListener, TcpStream};

    const LATE: u32 = 0;
    const NEW: u32 = 2;

    /// A bond that has dialled, with two streams of which nothing is to be said, and a link for each connection.
    fn state(links: &[TcpStream]) -> State {
        let settings = Settings { method: StripeMethod::RoundRobin, ..Settings::default() };
        let mut state = State::new(settings, 1 << 20, true, Memory::new(64 << 20));
        for stream in [LATE, NEW] {
            let to = Target::Service("node".to_owned());
            assert_eq!(state.open(to, Time::ZERO), Ok(stream));
            state.flows.get_mut(&stream).unwrap().due = Default::default();
        }
        for (id, tcp) in (0..).zip(links) {
            let gauge = Gauge::new(tcp.as_fd().try_clone_to_owned().unwrap()).unwrap();
            let (gauge, may_duplicate) = (Arc::new(gauge), true);
            let (interface, via, beyond) = (None, None, None);
            let link = Joining { gauge, may_duplicate, interface, via, beyond };
            state.join(LinkId(id), link, Time::ZERO);
        }
        state
    }

    impl State {
        /// A stream has 100 bytes more, and then this link is idle: what it is given.
        fn gives(&mut self, stream: u32, link: u32, now: Time) -> Option<Frame> {
            let flow = self.flows.get_mut(&stream).unwrap();
            let written = flow.poll_write(&mut Context::from_waker(Waker::noop()), &[0; 100]);
            assert!(matches!(written, Poll::Ready(Ok(100))));
            self.links.get_mut(&LinkId(link)).unwrap().is_idle = true;
            self.dispatch(now);
            let work = self.links.get_mut(&LinkId(link)).unwrap().work.take()?;
            Some(Frame::decode(work[..FRAME_HEAD].try_into().unwrap()).unwrap())
        }
    }

    #[tokio::test]
    async fn a_link_that_gets_nothing_new_carries_what_is_late() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dial = || TcpStream::connect(listener.local_addr().unwrap());
        let mut state = state(&[dial().await.unwrap(), dial().await.unwrap()]);
        let chunk = |stream, offset| Some(Frame::Chunk(ChunkHead { stream, offset, length: 100 }));
        let later = Time::ZERO + Duration::from_secs(60);
        // Link 0 is busy with it from now on.
        assert_eq!(state.gives(LATE, 0, Time::ZERO), chunk(LATE, 0));
        assert_eq!(state.gives(NEW, 1, Time::ZERO), chunk(NEW, 0));
        // Now it is the turn of link 0, for which the new bytes wait.
        assert_eq!(state.gives(NEW, 1, later), chunk(LATE, 0));
        // The copy is accounted for, by the link that carries it.
        let twice = |link| state.links[&LinkId(link)].twice;
        assert_eq!((twice(0), twice(1)), (0, 100));
    }
}

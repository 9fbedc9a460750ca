//! Several frames at once for one socket, of which none is begun that it does not take.

use super::{
    ChildId, Ring, Shared,
    child::{Child, Entry},
    wants,
};
use std::collections::BTreeMap;

/// A frame that lies before a child's socket.
#[derive(Clone, Debug)]
pub(super) struct Offered {
    pub(super) seq: u64,
    entry: Entry,
    /// It was overwritten meanwhile, and counted as missed.
    pub(super) was_missed: bool,
    /// The child begins anew since: that it goes does not move the child on.
    pub(super) is_of_before: bool,
}

impl Ring {
    /// What this child's socket may take now, one behind the other, each from where on: the rest of what
    /// it has begun, or a message or page, which are begun by being offered and are
    /// finished whatever happens to the ring; behind that the frames that follow, while all
    /// is not longer than `most`. Those are not begun before [`Ring::took`] says that bytes of them
    /// were taken; that has to be said at once, and not after a wait: until then they count as
    /// symbols of the ring, even those that are overwritten, so that it holds fewer others. For one child
    /// that is a quarter of the ring at most, for all a half.
    pub fn offer(&mut self, id: ChildId, most: usize) -> Vec<(Shared, usize)> {
        let Some(mut child) = self.children.remove(&id) else { return Vec::new() };
        self.settle(&mut child);
        child.offered.clear();
        let next = self.entry(child.next);
        let begins = child.rest().is_none() && !next.is_some_and(|next| child.takes(next));
        if begins {
            self.begin_next(&mut child);
            self.held.begins(child.begun_bytes(), self.lying_bytes());
        }
        let rest = child.rest().map(|(bytes, at)| (Shared::clone(bytes), at));
        let begun = rest.as_ref().map_or(0, |(bytes, at)| bytes.len() - at);
        self.offer_frames(&mut child, begun, most);
        let frames = child.offered.iter().map(|offered| (Shared::clone(&offered.entry.frame), 0));
        let all = rest.into_iter().chain(frames).collect();
        self.children.insert(id, child);
        all
    }

    fn offer_frames(&self, child: &mut Child, mut bytes: usize, most: usize) {
        let (mut seq, is_begun) = (child.next, child.rest().is_some());
        let others: usize = self.children.values().map(|other| other.offered.len()).sum();
        let room = (self.capacity / 4).min((self.capacity / 2).saturating_sub(others));
        while let Some(entry) = self.entry(seq).filter(|_| !child.has_message(seq)) {
            if wants(child, seq, entry) {
                bytes += entry.frame.len();
                let is_first = !is_begun && child.offered.is_empty();
                let fits = bytes <= most && child.offered.len() < room;
                if !child.takes(entry) || !(is_first || fits) {
                    return;
                }
                let offered =
                    Offered { seq, entry: entry.clone(), was_missed: false, is_of_before: false };
                child.offered.push_back(offered);
            }
            seq += 1;
        }
    }

    /// The child's socket took `n` bytes of what it was offered, or of what it has begun. How many symbols
    /// it took that were overwritten in between: they count as missed no more.
    pub fn took(&mut self, id: ChildId, n: usize) -> usize {
        let Some(mut child) = self.children.remove(&id) else { return 0 };
        let mut left = n - self.take(&mut child, n);
        let mut saved = 0;
        for offered in std::mem::take(&mut child.offered) {
            if left == 0 {
                break;
            }
            saved += usize::from(offered.was_missed);
            child.send_offered(&offered, self.header_bytes);
            self.held.begins(child.begun_bytes(), self.lying_bytes());
            left -= self.take(&mut child, left);
        }
        self.settle(&mut child);
        self.children.insert(id, child);
        saved
    }

    /// Takes at most so many bytes of what the child has begun; how many.
    fn take(&mut self, child: &mut Child, most: usize) -> usize {
        let taken = most.min(child.rest_bytes());
        self.held.ends(child.take_rest(taken));
        taken
    }

    /// Bytes of frames that are overwritten and still lie before sockets.
    pub(super) fn lying_bytes(&self) -> usize {
        let (firsts, ghosts) = self.lying();
        firsts + ghosts.values().sum::<usize>()
    }

    /// Frames that are overwritten and still lie before sockets, beside one a child.
    pub(super) fn ghosts(&self) -> usize {
        self.lying().1.len()
    }

    /// Of frames that are overwritten and still lie before sockets: the bytes of those that stand for what
    /// a child's socket may have begun, one a child; and by place the bytes of all others.
    fn lying(&self) -> (usize, BTreeMap<u64, usize>) {
        let (oldest, mut firsts, mut ghosts) = (self.oldest(), 0, BTreeMap::new());
        for child in self.children.values() {
            let mut gone = child.offered.iter().take_while(|offered| offered.seq < oldest);
            let own = if child.rest().is_none() { gone.next() } else { None };
            firsts += own.map_or(0, |offered| offered.entry.frame.len());
            ghosts.extend(gone.map(|offered| (offered.seq, offered.entry.frame.len())));
        }
        (firsts, ghosts)
    }
}

impl Child {
    /// Whether a wanted frame may go as one of several: its page is known, and that it goes changes
    /// nothing about those behind it.
    fn takes(&self, entry: &Entry) -> bool {
        let is_proven = entry.page.is_empty() || self.knows(entry.page_key());
        entry.is_source
            && is_proven
            && !self.has_lacks(entry.id.block)
            && !self.has_message(self.next)
    }

    fn send_offered(&mut self, offered: &Offered, header_bytes: usize) {
        if offered.was_missed && !offered.is_of_before {
            self.unmiss(&offered.entry);
        }
        let moved = if offered.is_of_before { self.next } else { offered.seq + 1 };
        let next = self.next.max(moved);
        self.send(&offered.entry, header_bytes);
        self.next = next;
    }
}

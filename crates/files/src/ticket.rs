//! Tickets: each lets another member read, once, what the ticket's owner may read.
//!
//! A ticket never widens rights. The owner's rights are checked when the ticket is issued and again when it is
//! redeemed, and only the member that the owner has named can redeem it.

use parking_lot::{Mutex, MutexGuard};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use thalweg_units::NodeId;
use thalweg_wire::{
    mesh::Name,
    object::{Failure, ReadRequest, SpoolId, Ticket, TransferHash},
};
use tokio::time::Instant;

/// The lifetime of a ticket and of the record of what was sent for it.
const LIFETIME: Duration = Duration::from_secs(3600);

/// The most bytes of all tickets together: half a million reads of files with names of 100 bytes. Beyond it a request
/// for a ticket is answered *busy*.
const MAX_BYTES: usize = 128 << 20;

/// The most bytes of one owner's tickets, so that an owner that requests tickets for all its data at once leaves room
/// for others. Beyond it its requests are answered *busy*.
const MAX_BYTES_PER_OWNER: usize = 32 << 20;

/// Bytes of a ticket beside the reads that it is for.
const TICKET_OVERHEAD: usize = 256;

/// What a ticket gives access to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TicketTarget {
    /// Parts of files.
    Files(Arc<[ReadRequest]>),
    /// An entry of the spool.
    Spooled(SpoolId),
}

impl TicketTarget {
    /// The bytes of memory that it takes: at least as many as the record of what was sent ([`TicketState::Sent`]).
    fn weight(&self) -> usize {
        match self {
            Self::Files(reads) => TICKET_OVERHEAD + reads.iter().map(weight).sum::<usize>(),
            Self::Spooled(_) => TICKET_OVERHEAD,
        }
    }
}

fn weight(read: &ReadRequest) -> usize {
    size_of::<ReadRequest>() + read.file.root.capacity() + read.file.path.as_bytes().len()
}

/// An issued ticket.
#[derive(Debug)]
struct IssuedTicket {
    owner: NodeId,
    to: Name,
    until: Instant,
    weight: usize,
    state: TicketState,
}

#[derive(Debug)]
enum TicketState {
    /// It is not redeemed.
    Valid(TicketTarget),
    /// It is redeemed: the data is being sent, or sending broke off.
    Spent,
    /// The hashes of the parts that were sent; `None` for a part that was not sent.
    Sent(Vec<Option<TransferHash>>),
}

/// All tickets that this node has issued and that have not expired.
#[derive(Debug, Default)]
pub struct Tickets(Mutex<TicketTable>);

#[derive(Debug, Default)]
struct TicketTable {
    issued: BTreeMap<Ticket, IssuedTicket>,
    /// The tickets in the order of their expiry.
    ends: std::collections::VecDeque<(Instant, Ticket)>,
    weight: usize,
    by_owner: BTreeMap<NodeId, usize>,
}

impl Tickets {
    /// Issues a ticket of `owner` for the member `to`.
    ///
    /// # Errors
    /// [`Failure::Busy`] if issued tickets take too much memory, [`Failure::System`] if there are no random numbers.
    pub fn issue(&self, owner: NodeId, to: Name, lent: TicketTarget) -> Result<Ticket, Failure> {
        let mut secret = [0; 16];
        let random = getrandom::fill(&mut secret);
        random.map_err(|e| Failure::System(format!("cannot get random numbers: {e}")))?;
        let ticket = Ticket(secret);
        let (until, weight) = (Instant::now() + LIFETIME, lent.weight());
        let mut book = self.lock();
        book.expire();
        let of_owner = book.by_owner.get(&owner).copied().unwrap_or(0);
        if book.weight + weight > MAX_BYTES || of_owner + weight > MAX_BYTES_PER_OWNER {
            return Err(Failure::Busy);
        }
        book.weight += weight;
        *book.by_owner.entry(owner).or_default() += weight;
        book.ends.push_back((until, ticket));
        let issued = IssuedTicket { owner, to, until, weight, state: TicketState::Valid(lent) };
        book.issued.insert(ticket, issued);
        Ok(ticket)
    }

    /// Redeems a ticket: returns its owner and what it gives access to. It cannot be redeemed again.
    ///
    /// # Errors
    /// [`Failure::Ticket`].
    pub fn redeem(&self, ticket: Ticket, member: &Name) -> Result<(NodeId, TicketTarget), Failure> {
        let mut book = self.lock();
        book.expire();
        let issued = book.issued.get_mut(&ticket).filter(|issued| issued.to == *member);
        let issued = issued.ok_or(Failure::Ticket)?;
        match std::mem::replace(&mut issued.state, TicketState::Spent) {
            TicketState::Valid(lent) => Ok((issued.owner, lent)),
            other => {
                issued.state = other;
                Err(Failure::Ticket)
            }
        }
    }

    /// Records the hashes of the parts that were sent for a ticket.
    pub fn sent(&self, ticket: Ticket, checks: Vec<Option<TransferHash>>) {
        if let Some(issued) = self.lock().issued.get_mut(&ticket) {
            issued.state = TicketState::Sent(checks);
        }
    }

    /// Removes a ticket: nobody will ask what was sent for it.
    pub fn forget(&self, ticket: Ticket) {
        self.lock().remove(ticket);
    }

    /// Returns the hashes of what was sent for tickets of this owner. A ticket is removed with its answer, so each is
    /// answered once.
    pub fn take_checks(
        &self,
        owner: NodeId,
        tickets: &[Ticket],
    ) -> Vec<Option<Vec<Option<TransferHash>>>> {
        let mut book = self.lock();
        tickets.iter().map(|ticket| book.take_checks(owner, *ticket)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, TicketTable> {
        self.0.lock()
    }
}

impl TicketTable {
    fn take_checks(&mut self, owner: NodeId, ticket: Ticket) -> Option<Vec<Option<TransferHash>>> {
        let issued = self.issued.get(&ticket)?;
        if issued.owner != owner || !matches!(issued.state, TicketState::Sent(_)) {
            return None;
        }
        match self.remove(ticket)?.state {
            TicketState::Sent(checks) => Some(checks),
            _ => None,
        }
    }

    fn expire(&mut self) {
        let now = Instant::now();
        while let Some((until, ticket)) = self.ends.front().copied()
            && (until <= now || !self.issued.contains_key(&ticket))
        {
            self.ends.pop_front();
            if self.issued.get(&ticket).is_some_and(|issued| issued.until <= now) {
                self.remove(ticket);
            }
        }
    }

    fn remove(&mut self, ticket: Ticket) -> Option<IssuedTicket> {
        let issued = self.issued.remove(&ticket)?;
        self.weight -= issued.weight;
        if let Some(weight) = self.by_owner.get_mut(&issued.owner) {
            *weight -= issued.weight;
            if *weight == 0 {
                self.by_owner.remove(&issued.owner);
            }
        }
        Some(issued)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::object::JobId;

    const OWNER: NodeId = NodeId::from_bytes([1; 32]);

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn lent(number: u64) -> TicketTarget {
        TicketTarget::Spooled(SpoolId { job: JobId([0; 16]), number })
    }

    #[tokio::test]
    async fn a_ticket_is_redeemed_by_one_member_once() {
        let tickets = Tickets::default();
        let ticket = tickets.issue(OWNER, name("fra"), lent(1)).unwrap();
        assert_eq!(tickets.redeem(ticket, &name("nyc")), Err(Failure::Ticket));
        assert_eq!(tickets.redeem(Ticket([0; 16]), &name("fra")), Err(Failure::Ticket));
        assert_eq!(tickets.redeem(ticket, &name("fra")), Ok((OWNER, lent(1))));
        assert_eq!(tickets.redeem(ticket, &name("fra")), Err(Failure::Ticket));
    }

    #[tokio::test]
    async fn only_the_owner_gets_the_hashes_of_what_was_sent_and_once() {
        let tickets = Tickets::default();
        let ticket = tickets.issue(OWNER, name("fra"), lent(1)).unwrap();
        assert_eq!(tickets.take_checks(OWNER, &[ticket]), [None], "it was not redeemed");
        tickets.redeem(ticket, &name("fra")).unwrap();
        tickets.sent(ticket, vec![Some(TransferHash([7; 32])), None]);
        assert_eq!(tickets.take_checks(NodeId::from_bytes([2; 32]), &[ticket]), [None]);
        let sent = Some(vec![Some(TransferHash([7; 32])), None]);
        assert_eq!(tickets.take_checks(OWNER, &[Ticket([0; 16]), ticket]), [None, sent]);
        assert_eq!(tickets.take_checks(OWNER, &[ticket]), [None]);
        assert_eq!(tickets.lock().weight, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_ticket_expires_after_an_hour() {
        let tickets = Tickets::default();
        let ticket = tickets.issue(OWNER, name("fra"), lent(1)).unwrap();
        tokio::time::advance(LIFETIME).await;
        assert_eq!(tickets.redeem(ticket, &name("fra")), Err(Failure::Ticket));
        let book = tickets.lock();
        assert!(book.issued.is_empty() && book.by_owner.is_empty() && book.weight == 0);
    }

    #[tokio::test]
    async fn the_tickets_of_an_owner_are_bounded() {
        let tickets = Tickets::default();
        for number in 0..(MAX_BYTES_PER_OWNER / TICKET_OVERHEAD) as u64 {
            tickets.issue(OWNER, name("fra"), lent(number)).unwrap();
        }
        assert_eq!(tickets.issue(OWNER, name("fra"), lent(0)), Err(Failure::Busy));
        let other = NodeId::from_bytes([2; 32]);
        assert!(tickets.issue(other, name("fra"), lent(0)).is_ok());
    }

    #[tokio::test]
    async fn long_names_count_with_their_length() {
        let tickets = Tickets::default();
        let snapshot = thalweg_wire::object::Snapshot {
            device: 0,
            inode: 0,
            size: 1,
            modified_ns: 0,
            changed_ns: 0,
        };
        let file = thalweg_wire::object::FileRef {
            root: vec![b'a'; 1_000_000],
            path: thalweg_wire::object::FilePath::new(b"b".to_vec()).unwrap(),
            snapshot,
        };
        let reads: Arc<[ReadRequest]> = [ReadRequest { file, from: 0, bytes: 1 }].into();
        let issue = || tickets.issue(OWNER, name("fra"), TicketTarget::Files(Arc::clone(&reads)));
        let out = std::iter::repeat_with(issue).take_while(Result::is_ok).count();
        assert_eq!(out, MAX_BYTES_PER_OWNER / 1_000_000);
    }
}

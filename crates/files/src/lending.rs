//! What this node does for data that is relayed between members: tickets, the spool, and fetches for others.

use super::{
    spool::{Spool, SpoolReading},
    ticket::{TicketTarget, Tickets},
};
use crate::remote::Spares;
use std::sync::Arc;
use thalweg_mesh::{Membership, MeshPeer, member_dialer::MemberDialer};
use thalweg_wire::object::{
    self, DeniedGrant, Failure, Grant, MAX_PART, MAX_PARTS, ReadRequest, SpoolId, Ticket,
    TransferHash,
};

/// Tickets and the spool of this node; cheap to clone.
#[derive(Clone, Debug)]
pub struct Lending {
    pub(super) spool: Spool,
    pub(super) tickets: Arc<Tickets>,
    /// Connections that prove the node's own key.
    pub(super) spares: Spares,
    membership: Membership,
}

/// What a redeemed ticket entitles to.
#[derive(Debug)]
pub enum RedeemedTicket {
    /// Parts of files, and the member that issued the ticket, with whose rights they are read.
    Files(MeshPeer, Arc<[ReadRequest]>),
    /// An entry of the spool.
    Spooled(Box<SpoolReading>),
}

impl Lending {
    /// Creates the service with this spool, for the members of this mesh; `dialer` proves the node's own key.
    pub fn new(spool: Spool, dialer: MemberDialer, membership: Membership) -> Self {
        let (tickets, spares) = (Arc::default(), Spares::new(dialer));
        Self { spool, tickets, spares, membership }
    }

    pub fn spool(&self) -> &Spool {
        &self.spool
    }

    /// Issues a ticket for each grant, provided that `may` allows all reads of the grant.
    pub fn grant(
        &self,
        owner: &MeshPeer,
        grants: Vec<Grant>,
        may: impl Fn(&ReadRequest) -> Result<(), Failure>,
    ) -> Vec<Result<Ticket, DeniedGrant>> {
        let one = |grant: Grant| {
            let denied = |(read, why)| DeniedGrant { read, why };
            check(&grant.reads, &may).map_err(denied)?;
            let lent = TicketTarget::Files(grant.reads.into_iter().map(plain).collect());
            let issued = self.tickets.issue(owner.key(), grant.to, lent);
            issued.map_err(|why| denied((0, why)))
        };
        grants.into_iter().map(one).collect()
    }

    /// Redeems a ticket for this member, if the ticket's owner is still a member.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn redeem(&self, member: &MeshPeer, ticket: Ticket) -> Result<RedeemedTicket, Failure> {
        let (owner, lent) = self.tickets.redeem(ticket, &member.member().name)?;
        match lent {
            TicketTarget::Files(reads) => {
                let owner = self.membership.peer(&owner, self.membership.now());
                Ok(RedeemedTicket::Files(owner.ok_or(Failure::Ticket)?, reads))
            }
            TicketTarget::Spooled(id) => {
                Ok(RedeemedTicket::Spooled(Box::new(self.spool.read(owner, id)?)))
            }
        }
    }

    /// Records the hashes of the parts that were sent for a ticket.
    pub fn sent(&self, ticket: Ticket, checks: Vec<Option<TransferHash>>) {
        self.tickets.sent(ticket, checks);
    }

    /// Removes a ticket: nobody will ask what was sent for it.
    pub fn forget(&self, ticket: Ticket) {
        self.tickets.forget(ticket);
    }

    /// Returns the hashes of what was sent for tickets of this owner, once for each ticket.
    pub fn checks(
        &self,
        owner: &MeshPeer,
        tickets: &[Ticket],
    ) -> Vec<Option<Vec<Option<TransferHash>>>> {
        self.tickets.take_checks(owner.key(), tickets)
    }

    /// Opens an entry of this owner for reading.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn spooled(&self, owner: &MeshPeer, id: SpoolId) -> Result<SpoolReading, Failure> {
        self.spool.read(owner.key(), id)
    }
}

/// Removes from a read the pattern by which the file was found, since it may be as long as a request.
fn plain(mut read: ReadRequest) -> ReadRequest {
    read.file.root = object::base(&read.file.root).to_vec();
    read
}

/// Checks the lengths of and rights to all reads.
///
/// # Errors
/// The index of the first read that is too long or not allowed, and why.
fn check(
    reads: &[ReadRequest],
    may: impl Fn(&ReadRequest) -> Result<(), Failure>,
) -> Result<(), (u32, Failure)> {
    let too_long = |read: &ReadRequest| read.bytes > MAX_PART;
    if reads.len() > MAX_PARTS || reads.iter().any(too_long) {
        let why = format!("a ticket has at most {MAX_PARTS} parts of {MAX_PART} bytes");
        return Err((0, Failure::System(why)));
    }
    (0..).zip(reads).try_for_each(|(at, read)| may(read).map_err(|why| (at, why)))
}

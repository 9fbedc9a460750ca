//! Requests about relayed data: tickets and the spool.

use super::{
    Requester,
    fetch::FetchOrder,
    lending::{Lending, RedeemedTicket},
    read::{FileReading, full_path},
    session::{Session, peer_key},
};
use std::{io, pin::pin, time::Duration};
use thalweg_base::costly;
use thalweg_wire::object::{DeniedGrant, Failure, Grant, ReadRequest, Reply, Request, Ticket};
use tokio::{task::spawn_blocking, time::sleep};

/// The interval of [`Reply::Wait`] messages while a transfer is in progress.
const WAIT_INTERVAL: Duration = Duration::from_secs(15);

impl Session {
    /// Answers one request about tickets or the spool.
    ///
    /// # Errors
    /// The channel's errors; `InvalidData` for a request of another kind.
    pub(super) async fn exchange(&mut self, request: Request) -> io::Result<()> {
        let Some(lending) = self.shared.lending.get().cloned() else {
            let why = "this node does not forward data".to_owned();
            return self.reply(&Reply::Failed(Failure::System(why))).await;
        };
        let owner = self.peer.key();
        // The owner's entries are kept as long as the channel is open.
        self.visit.get_or_insert_with(|| lending.spool().visit(owner));
        match request {
            Request::Tickets(grants) => {
                let tickets = self.grant(lending, grants).await?;
                self.reply(&Reply::Tickets(tickets).cut()).await
            }
            Request::Redeem(ticket) => self.redeem(&lending, ticket).await,
            Request::Sent(tickets) => {
                let checks = lending.checks(&self.peer, &tickets);
                self.reply(&Reply::Checks(checks)).await
            }
            Request::Fetch { id, from, tickets, bytes, then, note } => {
                self.fetch(&lending, FetchOrder { id, from, tickets, bytes, then, note }).await
            }
            Request::Holdings { job, after } => {
                let spool = lending.spool().clone();
                let holdings = spawn_blocking(move || spool.holdings(owner, job, after));
                self.reply(&Reply::Holdings(holdings.await.map_err(io::Error::other)?)).await
            }
            Request::Spooled(id) => match lending.spooled(&self.peer, id) {
                Ok(reading) => {
                    self.reply(&Reply::Parts(reading.parts().len() as u32)).await?;
                    self.send_source(reading).await.map(drop)
                }
                Err(why) => self.reply(&Reply::Failed(why)).await,
            },
            Request::Drop(ids) => {
                let spool = lending.spool().clone();
                self.wait_for(spawn_blocking(move || spool.forget(owner, &ids))).await?;
                self.reply(&Reply::Dropped).await
            }
            Request::DropJob(job) => {
                let spool = lending.spool().clone();
                self.wait_for(spawn_blocking(move || spool.forget_job(owner, job))).await?;
                self.reply(&Reply::Dropped).await
            }
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "unexpected kind of request")),
        }
    }

    /// Creates tickets for the files that the peer may read. Runs off the async runtime, since there may be 100,000 of
    /// them.
    async fn grant(
        &mut self,
        lending: Lending,
        grants: Vec<Grant>,
    ) -> io::Result<Vec<Result<Ticket, DeniedGrant>>> {
        let gone = || io::Error::other("the peer is no longer a member");
        let (requester, peer) = (self.requester().ok_or_else(gone)?, self.peer.clone());
        let peer_key = peer_key(&requester.member);
        let granting = move || {
            let may = |read: &ReadRequest| {
                requester.offers().readable(&requester.member, &full_path(&read.file)).map(drop)
            };
            lending.grant(&peer, grants, may)
        };
        self.wait_for(costly::run(peer_key, granting)).await
    }

    async fn redeem(&mut self, lending: &Lending, ticket: Ticket) -> io::Result<()> {
        match lending.redeem(&self.peer, ticket) {
            Err(why) => self.reply(&Reply::Failed(why)).await,
            Ok(RedeemedTicket::Spooled(reading)) => {
                self.reply(&Reply::Parts(reading.parts().len() as u32)).await?;
                self.send_source(*reading).await?;
                // No checks are kept: the source's hash proves spooled data, not this node's.
                lending.forget(ticket);
                Ok(())
            }
            Ok(RedeemedTicket::Files(owner, reads)) => {
                let requester = Requester::new(&self.shared, owner.member().clone());
                self.reply(&Reply::Parts(reads.len() as u32)).await?;
                let reading = self.send_source(FileReading::new(requester, reads.to_vec())).await?;
                lending.sent(ticket, reading.results.into_iter().map(Result::ok).collect());
                Ok(())
            }
        }
    }

    /// Fetches into the spool and reports progress. A peer that left is noticed when `Wait` cannot be sent; the fetch
    /// is dropped then, and nothing is kept.
    async fn fetch(&mut self, lending: &Lending, order: FetchOrder) -> io::Result<()> {
        let peer = self.peer.clone();
        let mut work = pin!(lending.fetch(&peer, order));
        let reply = loop {
            tokio::select! {
                done = &mut work => break done.unwrap_or_else(Reply::Failed),
                () = sleep(WAIT_INTERVAL) => self.reply(&Reply::Wait).await?,
            }
        };
        self.reply(&reply).await
    }
}

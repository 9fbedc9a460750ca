//! Drop boxes: they collect submissions from many clients until a deadline. This crate is the client, the destination,
//! and the nodes that store data for the destination.
//!
//! A client commits to its data before the deadline and transfers the data later, so that a deadline causes no rush on
//! the network. The destination answers a commitment with a signed stamp; a node answers the data with a signed receipt.
//! The client encrypts the data, so that only the destination can read it.
//!
//! Source: the system *Bistro*, Cheng et al., *Large-scale Data Collection: a Coordinated Approach* (INFOCOM 2004), §I.
//! The messages are in `wire::bistro`; `docs/submit.md` describes the operator's settings and tasks.
//!
//! ```text
//! client ── commit ──► destination: ledger ─ journal           (step 1; many commitments share one sync)
//!    └───── push ────► node: spool ─ journal ── outbox ──► destination: receipts   (step 2)
//!                        └────── gather ────────────────► destination: collect     (step 3)
//! ```
//!
//! Terms:
//!
//! - *destination*: the node that a box belongs to; *node*: here mostly one that stores data for it (the destination can
//!   be one of them). *Client*: who submits; a *member* of the mesh, or a *stranger* that has only a key.
//! - *submission*: one client's data for a box. *Commitment*: its encrypted size and hidden hash; an `Intent` is the
//!   request to record one.
//! - *stamp*: the destination's signed record of a commitment, with number, client and date. *Ledger*: all stamps.
//! - *sheet*: the signed description of a box, which clients download: deadline, limits, public key, nodes.
//! - *envelope*: a submission in encrypted form, made of *pieces*. *Push*: its transfer to a node.
//! - *part*: the incomplete data of an interrupted push. *Spool*: everything that a node stores for a box.
//! - *receipt*: a node's signed statement that it has the data of a stamp. *Delivery*: its transfer to the destination,
//!   by the node's *outbox*.
//! - *evidence*: the client's text file with its commitment, secrets, stamp, receipt and sheet.
//! - *collect*: to fetch the data from the nodes to the destination, by `thalweg_gather`. *Due*: at a node and not yet
//!   collected. *Forget*: to delete collected data at a node.
//! - *refusal*: why a request is not granted. *Denial*: a refusal of one submission, signed by the destination.
//! - *promise*: room that a stamp reserves until its data arrives; it counts for a *party*, which is a member or a
//!   stranger's address.
//! - *strike*: the operator's removal of a submission or exclusion of a key.
//! - *journal*: an append-only file of records. *Roster*: the signed list of the mesh's members.

mod client;
mod clock;
pub mod collect;
mod envelope;
mod files;
mod journal;
mod ledger;
mod node_channel;
mod node_timeout;
mod outbox;
mod promises;
mod rate_limit;
mod receipts;
mod report;
mod serve;
mod served_box;
mod settings;
mod spool;
mod strike;
mod submitters;
mod view;

pub use client::{
    ClientError, NodeOffer, PushError, Target, begin_evidence, find_nodes, load_evidence, new_draw,
    new_nonce, open_data, path_beside, push, save_evidence_in_turn,
};
pub use envelope::{BoxKey, Envelope, EnvelopeError, commit, new_keys, open};
pub use files::BoxFiles;
pub use ledger::Rules;
pub use node_channel::{NodeAddress, NodeChannel, NodeChannelError};
pub use receipts::{DeliveringNode, VerifiedReceipt};
pub use settings::Settings;
pub use spool::SpoolCounts;
pub use strike::strike;
pub use view::{Collected, View};

use futures_util::future::join_all;
use served_box::{ServedBox, ServingNode};
use std::{collections::BTreeMap, io, path::Path, sync::Arc};
use thalweg_base::{clock::WallClock, costly::Turns, log::Log, throttle::Throttle};
use thalweg_mesh::Membership;
use thalweg_net::{PrivateKey, channel::Connector};
use thalweg_wire::mesh::Name;
use thiserror::Error;

/// The drop boxes that a node serves, as destination or by storing data; cheap to clone.
#[derive(Clone, Debug)]
pub struct DropBoxes(Arc<ServiceState>);

/// The state that all parts of the service share.
#[derive(Debug)]
struct ServiceState {
    /// The name and key of this node.
    me: Name,
    key: Arc<PrivateKey>,
    membership: Membership,
    connector: Connector,
    boxes: BTreeMap<Name, ServedBox>,
    /// The settings of the boxes.
    settings: Vec<Settings>,
    counts: report::Counts,
    /// Makes each client's requests wait for each other, however many channels it uses.
    request_turns: Turns,
    ends: Throttle,
    log: Log,
}

/// The most requests that are answered at a time, at most one for each client. Most of them wait for the disk.
const MAX_REQUESTS: usize = 4096;

/// The error of opening a box.
#[derive(Debug, Error)]
#[error("drop box `{name}`: {source}")]
pub struct DropBoxError {
    pub name: Name,
    /// The error of opening its directory.
    pub source: io::Error,
}

impl DropBoxes {
    /// Opens the boxes in these settings for the node with this name and key, below its state directory.
    ///
    /// # Errors
    /// [`DropBoxError`].
    pub fn open(
        settings: &[Settings],
        state: &Path,
        (me, key): (Name, PrivateKey),
        membership: Membership,
        log: Log,
    ) -> Result<Self, DropBoxError> {
        Self::open_with_clock(settings, state, (me, key), membership, WallClock::default(), log)
    }

    /// Opens the boxes with another clock.
    ///
    /// # Errors
    /// As [`DropBoxes::open`].
    pub fn open_with_clock(
        settings: &[Settings],
        state: &Path,
        (me, key): (Name, PrivateKey),
        membership: Membership,
        clock: WallClock,
        log: Log,
    ) -> Result<Self, DropBoxError> {
        let key = Arc::new(key);
        let failed = |source| DropBoxError { name: me.clone(), source };
        let connector = Connector::new(&key).map_err(failed)?;
        let host = ServingNode { state, name: &me, key: &key, clock: &clock };
        let mut boxes = BTreeMap::new();
        for one in settings {
            boxes.extend(ServedBox::open(one, &host)?.map(|one| (one.name.clone(), one)));
        }
        Ok(Self(Arc::new(ServiceState {
            me,
            key,
            membership,
            connector,
            boxes,
            settings: settings.to_vec(),
            counts: report::Counts::default(),
            request_turns: Turns::new(MAX_REQUESTS),
            ends: Throttle::default(),
            log,
        })))
    }

    /// Brings receipts to the destinations and never returns; drop the future to stop it.
    pub async fn run(self) {
        let telling = self.0.boxes.values().map(|one| self.0.deliver_receipts(one));
        join_all(telling).await;
    }

    /// The directories with the data of boxes, each with the destination that may read it through `thalweg_files`.
    pub fn offers(&self) -> Vec<(std::path::PathBuf, Name)> {
        let offer = |one: &ServedBox| {
            let to = match &one.role {
                served_box::BoxRole::Destination(_) => self.0.me.clone(),
                served_box::BoxRole::Node(destination) => destination.clone(),
            };
            one.spool.as_ref().map(|spool| (spool.files.data().to_owned(), to))
        };
        self.0.boxes.values().filter_map(offer).collect()
    }
}

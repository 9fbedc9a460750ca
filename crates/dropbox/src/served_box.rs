//! One configured box at this node: its role, records and storage.

use super::{
    BoxFiles, DropBoxError, Rules,
    ledger::Ledger,
    rate_limit::AddressLimits,
    receipts::{DeliveringNode, ReceiptRegister, VerifiedReceipt},
    spool::Spool,
    submitters::AllowedSubmitters,
};
use crate::{BoxKey, Settings};
use std::{path::Path, sync::Arc};
use thalweg_base::clock::WallClock;
use thalweg_net::PrivateKey;
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::{
    Signed, Signer as _,
    bistro::{Refusal, Sheet, SheetNode, Stamp, envelope_size},
    mesh::{Name, Roster},
};

/// A box.
#[derive(Debug)]
pub(super) struct ServedBox {
    pub name: Name,
    pub submitters: AllowedSubmitters,
    pub rate_limit: AddressLimits,
    pub role: BoxRole,
    /// The storage for data; `None` at a destination that only uses other nodes.
    pub spool: Option<Spool>,
    max_bytes: u64,
}

/// The role of this node for a box. A destination can also store data.
#[derive(Debug)]
pub(super) enum BoxRole {
    Destination(Box<DestinationRecords>),
    /// It takes data for this destination.
    Node(Name),
}

/// The destination's records of a box: ledger and receipts.
#[derive(Debug)]
pub(super) struct DestinationRecords {
    pub ledger: Ledger,
    pub receipts: ReceiptRegister,
    /// The nodes that take data.
    pub nodes: Vec<Name>,
    /// The public key to which data is encrypted.
    encryption_key: [u8; 32],
}

/// This node, which serves the boxes.
pub(super) struct ServingNode<'a> {
    pub state: &'a Path,
    pub name: &'a Name,
    pub key: &'a Arc<PrivateKey>,
    pub clock: &'a WallClock,
}

impl ServedBox {
    /// Opens a box with these settings; `None` if they have no name, which the check of the settings has reported.
    ///
    /// # Errors
    /// Returns the error of opening its directory.
    pub fn open(settings: &Settings, host: &ServingNode<'_>) -> Result<Option<Self>, DropBoxError> {
        // The check of the settings has already reported a missing name.
        let Some(name) = settings.name.clone() else { return Ok(None) };
        let files = BoxFiles::new(host.state, &name, settings.directory.as_deref());
        let failed = |source| DropBoxError { name: name.clone(), source };
        let files = files.create().map_err(failed)?;
        let mut takes_data = true;
        let role = match &settings.destination {
            Some(destination) => BoxRole::Node(destination.clone()),
            None => {
                let records =
                    DestinationRecords::open(settings, &files, &name, host).map_err(failed)?;
                takes_data = records.nodes.contains(host.name);
                BoxRole::Destination(Box::new(records))
            }
        };
        let (key, me, most) = (host.key.clone(), host.name.clone(), settings.max_total.as_bytes());
        let spool = match takes_data {
            true => Some(Spool::open(files, key, me, most).map_err(failed)?),
            false => None,
        };
        let (submitters, rate_limit) =
            (AllowedSubmitters::from_settings(settings), AddressLimits::new(settings.max_rate));
        let max_bytes = settings.max_bytes.as_bytes();
        Ok(Some(Self { name, submitters, rate_limit, role, spool, max_bytes }))
    }

    /// The destination's records.
    ///
    /// # Errors
    /// [`Refusal::NotDestination`].
    pub fn records(&self) -> Result<&DestinationRecords, Refusal> {
        match &self.role {
            BoxRole::Destination(records) => Ok(records),
            BoxRole::Node(destination) => Err(Refusal::NotDestination {
                drop_box: self.name.clone(),
                destination: destination.clone(),
            }),
        }
    }

    /// The storage for submissions' data.
    ///
    /// # Errors
    /// Returns a refusal if only other nodes store data for this box.
    pub fn spool(&self) -> Result<&Spool, Refusal> {
        let elsewhere = "take data for this box: its other nodes do";
        self.spool.as_ref().ok_or_else(|| Refusal::Unable(elsewhere.into()))
    }

    /// Checks that a stamp is the destination's, for this box and this client, and of the right size.
    pub fn check(
        &self,
        stamp: &Signed<Stamp>,
        destination: Option<NodeId>,
        client: &NodeId,
        bytes: u64,
    ) -> Result<(), Refusal> {
        let said = stamp.value();
        let size = said.commitment.size;
        match () {
            () if destination.is_none() => {
                Err(Refusal::Unable("find the destination in its roster".into()))
            }
            () if destination != Some(stamp.signer()) => {
                Err(Refusal::Forged("the stamp is not the destination's".into()))
            }
            () if said.drop_box != self.name => {
                Err(Refusal::Forged(format!("the stamp is for box `{}`", said.drop_box)))
            }
            () if said.client != *client => Err(Refusal::NotYours),
            () if size != bytes => Err(Refusal::Size { stamped: size, came: bytes }),
            () if size > envelope_size(self.max_bytes) => {
                let size = said.commitment.content_size();
                Err(Refusal::TooLarge { size, max: self.max_bytes })
            }
            () => Ok(()),
        }
    }
}

impl DestinationRecords {
    fn open(
        settings: &Settings,
        files: &BoxFiles,
        name: &Name,
        host: &ServingNode<'_>,
    ) -> std::io::Result<Self> {
        let rules = Rules {
            name: name.clone(),
            until: settings.until.unwrap_or(WallTime::from_unix_nanos(0)),
            max_bytes: settings.max_bytes.as_bytes(),
            max_total: settings.max_total.as_bytes(),
            max_per_key: settings.submissions_per_key(),
            max_bytes_per_key: settings.bytes_per_key(),
            max_submissions: settings.max_submissions,
        };
        let ledger = Ledger::open(files, host.key.clone(), rules, host.clock.clone())?;
        let (receipts, known) = ReceiptRegister::open(files, host.key.id(), name.clone())?;
        known.into_iter().for_each(|number| ledger.record_filled(number));
        let mut nodes = settings.nodes.clone();
        if nodes.is_empty() {
            nodes.push(host.name.clone());
        }
        let encryption_key = BoxKey::of(host.key, name)?.public();
        Ok(Self { ledger, receipts, nodes, encryption_key })
    }

    /// Stores receipts, except those of struck submissions. Returns a result for each; an error says why it will never
    /// be stored.
    ///
    /// # Errors
    /// As [`ReceiptRegister::store`].
    pub async fn store(
        &self,
        sender: &DeliveringNode,
        read: &[Result<VerifiedReceipt, Refusal>],
    ) -> Result<Vec<Result<(), Refusal>>, Refusal> {
        let wanted = |read: &Result<VerifiedReceipt, Refusal>| match read {
            Ok(arrival) if self.ledger.is_struck(arrival.stamp.value()) => {
                Err(Refusal::NotAdmitted)
            }
            read => read.clone(),
        };
        let read: Vec<_> = read.iter().map(wanted).collect();
        let answers = self.receipts.store(sender, &read).await?;
        for (arrival, answer) in read.iter().zip(&answers) {
            if let (Ok(arrival), Ok(())) = (arrival, answer) {
                self.ledger.record_filled(arrival.stamp.value().number);
            }
        }
        Ok(answers)
    }

    /// Creates the box's sheet, which clients download: deadline, limits, the box's key, and the nodes that store data,
    /// with their keys and addresses from the current roster.
    pub fn sheet(&self, roster: Option<&Roster>) -> Sheet {
        let rules = self.ledger.rules();
        let node = |name: &Name| {
            let member = roster?.by_name(name)?;
            let (key, addresses) = (member.node?, member.addresses.clone());
            Some(SheetNode { name: name.clone(), key, addresses })
        };
        Sheet {
            drop_box: rules.name.clone(),
            until: rules.until,
            max_bytes: rules.max_bytes,
            encryption_key: self.encryption_key,
            nodes: self.nodes.iter().filter_map(node).collect(),
        }
    }
}

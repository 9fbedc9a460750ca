//! File transfer between nodes over channels `thalweg/object/1` (`wire::object`): the serving and the fetching end.
//!
//! Members send requests and receive bytes with their hashes. The settings (`[files]`) list the directories that a node
//! offers and the members that may read them; by default it offers none.
//!
//! ```text
//! serving:  door ─► Files ─► a session for each channel ─┬ list, read ─► root: only below offered directories
//!                                                        ├ store      ─► partially received files
//!                                                        ├ delivery   ─► batches of small files
//!                                                        └ exchange   ─► tickets, spool
//! fetching: name, path ─► remote::Remote ─► list, read ─► inventory ─► land::Land (of `gather`) ─► files
//! ```
//!
//! Collections and `send` are in `thalweg_gather`, which uses the fetching end.

mod counts;
mod delivery;
mod exchange;
mod fetch;
mod hashes;
mod lending;
mod list;
mod offer;
mod pattern;
mod quota;
mod read;
mod root;
mod sender;
mod session;
mod settings;
mod slots;
mod store;
mod turns;

pub mod inventory;
pub mod land;
pub mod remote;
pub mod sample;
pub mod spool;
pub mod ticket;

pub use lending::Lending;
pub use offer::OfferError;
pub use pattern::{Excludes, check_excludes};
pub use quota::Limits;
pub use settings::{AcceptingDirectory, OfferedDirectory, Settings};

use counts::Counts;
use futures_util::future::BoxFuture;
use hashes::Hashes;
use offer::Offers;
use prometheus_client::registry::Registry;
use slots::Slots;
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};
use store::Inbox;
use thalweg_base::{live_settings::LiveSettings, log::Log};
use thalweg_mesh::{Membership, MeshPeer, service::MemberService};
use thalweg_net::channel::Channel;
use thalweg_units::NodeId;
use thalweg_wire::mesh::Member;
use tokio::net::TcpStream;
use turns::Turns;

/// The service that offers and accepts files; cheap to clone.
#[derive(Clone, Debug)]
pub struct Files(Arc<ServiceState>);

/// State shared by all sessions.
#[derive(Debug)]
struct ServiceState {
    membership: Membership,
    offers: LiveSettings<Offers>,
    /// The directory with this node's keys.
    state: PathBuf,
    inbox: Inbox,
    counts: Counts,
    slots: Arc<Slots>,
    hashes: Hashes,
    /// Serialises the hashing of each member's files for comparisons.
    hashing: Turns,
    /// Present if this node relays data between other members.
    lending: OnceLock<Lending>,
    log: Log,
}

/// The requesting member, with its rights from the current roster.
#[derive(Clone, Debug)]
struct Requester {
    shared: Arc<ServiceState>,
    member: Arc<Member>,
    /// The directories as they were when the request began.
    offers: Arc<Offers>,
}

impl Requester {
    fn new(shared: &Arc<ServiceState>, member: Member) -> Self {
        let offers = shared.offers.get();
        Self { shared: Arc::clone(shared), member: Arc::new(member), offers }
    }

    fn offers(&self) -> &Offers {
        &self.offers
    }
}

impl Files {
    /// Creates the service. `state` is the directory with this node's keys, `node` is its public key.
    ///
    /// # Errors
    /// [`OfferError`].
    pub fn new(
        settings: &Settings,
        state: &Path,
        node: NodeId,
        membership: Membership,
        log: Log,
    ) -> Result<Self, OfferError> {
        let offers = Offers::new(settings, state)?;
        let slots = Slots::new(settings.max_channels);
        let lending = OnceLock::new();
        Ok(Self(Arc::new(ServiceState {
            membership,
            offers: LiveSettings::new(offers),
            state: state.to_owned(),
            inbox: Inbox::new(node),
            counts: Counts::default(),
            slots,
            hashes: Hashes::default(),
            hashing: Turns::default(),
            lending,
            log,
        })))
    }

    /// Opens the directories of other settings. Requests that begin once the function that it returns was called use them;
    /// other settings than those of directories stay as they are.
    ///
    /// # Errors
    /// [`OfferError`]; nothing is changed.
    pub fn prepare(&self, settings: &Settings) -> Result<impl FnOnce() + Send + use<>, OfferError> {
        let offers = Offers::new(settings, &self.0.state)?.with_counts_of(&self.0.offers.get());
        let shared = Arc::clone(&self.0);
        Ok(move || shared.offers.set(offers))
    }

    /// Registers the counters with `registry`, as `thalweg_files_…`.
    pub fn register(&self, registry: &mut Registry) {
        self.0.counts.register(registry);
    }

    /// Enables relaying: this node issues tickets for its files to third nodes, and spools other members' data. Only
    /// the first call has an effect.
    pub fn lend(&self, lending: Lending) {
        // A second `Lending` would have another spool, whose entries nothing could reach.
        _ = self.0.lending.set(lending);
    }
}

impl MemberService for Files {
    fn serve(
        &self,
        channel: Channel<TcpStream>,
        peer: MeshPeer,
        from: SocketAddr,
    ) -> BoxFuture<'static, ()> {
        Box::pin(session::serve(Arc::clone(&self.0), channel, peer, from))
    }

    fn report(&self) -> serde_json::Value {
        let (offered, accepting) = self.0.offers.get().count();
        let mut report = self.0.counts.report();
        if let Some(report) = report.as_object_mut() {
            report.insert("offered".into(), offered.into());
            report.insert("accepting".into(), accepting.into());
        }
        report
    }
}

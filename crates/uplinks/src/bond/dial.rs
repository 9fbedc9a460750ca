//! The dialling end: a bond to a member, with a link for each interface and each route from it.

use super::{
    BondStream, GRACE, LinkStatus, StreamError,
    engine::{Engine, MEMORY},
    link_interfaces::{InterfaceLister, LinkInterfaces},
    link_keeper::keep,
    link_maker::LinkMaker,
    memory::Memory,
    readiness::Readiness,
    state::Settings,
};
use std::{collections::BTreeMap, future::pending, io, sync::Arc};
use thalweg_bond::LinkId;
use thalweg_net::{Dialer, Hop, Medium, Route, interfaces};
use thalweg_wire::bond::{BondId, Target};
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A bond to a member. Dropping it ends the bond, and its streams.
pub struct Bond {
    engine: Arc<Engine>,
    readiness: watch::Receiver<Readiness>,
    _end: DropGuard,
}

impl std::fmt::Debug for Bond {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bond({:?})", *self.readiness.borrow())
    }
}

impl Bond {
    /// Starts a bond to the member `to`, over all usable interfaces and the routes of [`Hop::by`].
    ///
    /// # Errors
    /// The system gives no random number.
    pub fn begin(dialer: Dialer, to: Hop, settings: Settings) -> io::Result<Self> {
        Self::with_interfaces(dialer, to, settings, Arc::new(|_| interfaces()))
    }

    /// As [`Self::begin`], but over these interfaces alone.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn with_interfaces(
        dialer: Dialer,
        to: Hop,
        settings: Settings,
        by: InterfaceLister,
    ) -> io::Result<Self> {
        Self::with_memory(dialer, to, (settings, Memory::new(MEMORY)), LinkInterfaces::Listed(by))
    }

    /// As [`Self::with_interfaces`], but streams hold no more than `memory` has. If `by` keeps to caps and limits,
    /// links are charged to their interfaces, and end when those may not be used any more.
    pub(super) fn with_memory(
        dialer: Dialer,
        to: Hop,
        (settings, memory): (Settings, Memory),
        by: LinkInterfaces,
    ) -> io::Result<Self> {
        // A link is a plain connection, never a stream of another bond.
        let mut to = Hop { medium: Medium::Underlay, ..to };
        let mut routes = std::mem::take(&mut to.by);
        if routes.is_empty() {
            routes.push(Route::direct());
        }
        let mut bond = BondId([0; 16]);
        getrandom::fill(&mut bond.0).map_err(io::Error::other)?;
        // The far end announces its window in its first greeting; until then nothing is sent.
        let engine = Engine::within(settings, 0, true, memory);
        let end = CancellationToken::new();
        let (told, readiness) = watch::channel(Readiness::default());
        let uplinks = by.uplinks().cloned();
        let maker = LinkMaker {
            dialer,
            to,
            routes,
            bond,
            engine: Arc::clone(&engine),
            readiness: told,
            uplinks,
        };
        let maker = Arc::new(maker);
        let (watching, ended) = (Arc::clone(&engine), end.clone());
        tokio::spawn(async move {
            let why = tokio::select! {
                () = keep(Arc::clone(&maker), by) => "its links are no longer maintained",
                // The engine was broken off already, and keeps that first reason.
                () = watching.watch() => "the bond broke",
                () = ended.cancelled() => "the bond was given up",
                () = wait_until_abandoned(maker.readiness.subscribe()) => "no link of the bond came back",
            };
            watching.break_off(why);
            maker.readiness.send_modify(|readiness| readiness.is_over = true);
        });
        Ok(Self { engine, readiness, _end: end.drop_guard() })
    }

    /// Opens a stream to the member's own port, for a channel of any protocol.
    ///
    /// # Errors
    /// Why the stream was not opened.
    pub async fn open(&self) -> Result<BondStream, StreamError> {
        self.engine.open(Target::Service("node".to_owned())).await
    }

    /// The readiness of the bond, now and as it changes.
    pub fn readiness(&self) -> watch::Receiver<Readiness> {
        self.readiness.clone()
    }

    /// Its links, as they are now.
    pub fn links(&self) -> Vec<LinkStatus> {
        self.engine.links()
    }

    /// Streams that are open, or not settled yet.
    pub fn streams(&self) -> usize {
        self.engine.streams()
    }

    /// Bytes of chunks that each link was given so far.
    pub fn sent(&self) -> BTreeMap<LinkId, u64> {
        self.engine.sent()
    }
}

/// Returns once all links have been gone for [`GRACE`]: by then the far end has forgotten the bond, too.
async fn wait_until_abandoned(mut readiness: watch::Receiver<Readiness>) {
    loop {
        if readiness.wait_for(|readiness| readiness.most > 0 && readiness.live == 0).await.is_err()
        {
            return pending().await;
        }
        let back = readiness.wait_for(|readiness| readiness.live > 0);
        if timeout(GRACE, back).await.is_err() {
            return;
        }
    }
}

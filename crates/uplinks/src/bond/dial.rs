//! The dialling end: a bond to a member, with a link for each interface and each route from it.

use super::{
    BondStream, Broken, GRACE, LinkStatus,
    by::{By, Interfaces},
    engine::{Engine, MEMORY},
    keeping::keep,
    making::Making,
    memory::Memory,
    standing::Standing,
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
    standing: watch::Receiver<Standing>,
    _end: DropGuard,
}

impl std::fmt::Debug for Bond {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bond({:?})", *self.standing.borrow())
    }
}

impl Bond {
    /// Starts a bond to the member `to`, over all usable interfaces and the routes of [`Hop::by`].
    ///
    /// # Errors
    /// The system gives no random number.
    pub fn begin(dialer: Dialer, to: Hop, settings: Settings) -> io::Result<Self> {
        Self::by(dialer, to, settings, Arc::new(|_| interfaces()))
    }

    /// As [`Self::begin`], but over these interfaces alone.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn by(dialer: Dialer, to: Hop, settings: Settings, by: Interfaces) -> io::Result<Self> {
        Self::over(dialer, to, (settings, Memory::new(MEMORY)), By::These(by))
    }

    /// As [`Self::by`], but streams hold no more than `memory` has. If `by` keeps to caps and limits, links are charged
    /// to their interfaces, and end when those may not be used any more.
    pub(super) fn over(
        dialer: Dialer,
        to: Hop,
        (settings, memory): (Settings, Memory),
        by: By,
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
        let (told, standing) = watch::channel(Standing::default());
        let uplinks = by.uplinks().cloned();
        let making = Making {
            dialer,
            to,
            routes,
            bond,
            engine: Arc::clone(&engine),
            standing: told,
            uplinks,
        };
        let making = Arc::new(making);
        let (watching, ended) = (Arc::clone(&engine), end.clone());
        tokio::spawn(async move {
            let why = tokio::select! {
                () = keep(Arc::clone(&making), by) => "its links are no longer maintained",
                // The engine was broken off already, and keeps that first reason.
                () = watching.watch() => "the bond broke",
                () = ended.cancelled() => "the bond was given up",
                () = forsaken(making.standing.subscribe()) => "no link of the bond came back",
            };
            watching.break_off(why);
            making.standing.send_modify(|standing| standing.is_over = true);
        });
        Ok(Self { engine, standing, _end: end.drop_guard() })
    }

    /// Opens a stream to the member's own port, for a channel of any protocol.
    ///
    /// # Errors
    /// Why the stream was not opened.
    pub async fn open(&self) -> Result<BondStream, Broken> {
        self.engine.open(Target::Service("node".to_owned())).await
    }

    /// The standing of the bond, now and as it changes.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
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
async fn forsaken(mut standing: watch::Receiver<Standing>) {
    loop {
        if standing.wait_for(|standing| standing.most > 0 && standing.live == 0).await.is_err() {
            return pending().await;
        }
        let back = standing.wait_for(|standing| standing.live > 0);
        if timeout(GRACE, back).await.is_err() {
            return;
        }
    }
}

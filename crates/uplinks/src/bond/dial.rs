//! The near end: a bond to a member, with a link by each interface, and by each route from it.

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
    /// To the member `to`, by all usable interfaces and the routes of [`Hop::by`].
    ///
    /// # Errors
    /// If the system gives no random number.
    pub fn begin(dialer: Dialer, to: Hop, settings: Settings) -> io::Result<Self> {
        Self::by(dialer, to, settings, Arc::new(|_| interfaces()))
    }

    /// By these interfaces alone.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn by(dialer: Dialer, to: Hop, settings: Settings, by: Interfaces) -> io::Result<Self> {
        Self::over(dialer, to, (settings, Memory::new(MEMORY)), By::These(by))
    }

    /// The same, whose streams hold no more than this memory has; where that is looked after, links pay for their
    /// interfaces, and end when those may not be used any more.
    pub(super) fn over(
        dialer: Dialer,
        to: Hop,
        (settings, memory): (Settings, Memory),
        by: By,
    ) -> io::Result<Self> {
        // Links are no bond's streams themselves.
        let mut to = Hop { medium: Medium::Underlay, ..to };
        let mut routes = std::mem::take(&mut to.by);
        if routes.is_empty() {
            routes.push(Route::direct());
        }
        let mut bond = BondId([0; 16]);
        getrandom::fill(&mut bond.0).map_err(io::Error::other)?;
        // The far end says its window in its first greeting; until then nothing is sent.
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
                () = keep(Arc::clone(&making), by) => "its links are kept no more",
                // It was broken off before, for a reason that stands.
                () = watching.watch() => "the bond broke",
                () = ended.cancelled() => "the bond was given up",
                () = forsaken(making.standing.subscribe()) => "no link of the bond came back",
            };
            watching.break_off(why);
            making.standing.send_modify(|standing| standing.is_over = true);
        });
        Ok(Self { engine, standing, _end: end.drop_guard() })
    }

    /// A stream to the member's own port: for a channel of whatever protocol.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn open(&self) -> Result<BondStream, Broken> {
        self.engine.open(Target::Service("node".to_owned())).await
    }

    /// How it does, now and later.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    /// Its links, as they are now.
    pub fn links(&self) -> Vec<LinkStatus> {
        self.engine.links()
    }

    /// Streams that are open, or not settled.
    pub fn streams(&self) -> usize {
        self.engine.streams()
    }

    /// Bytes of streams that each link was given so far.
    pub fn sent(&self) -> BTreeMap<LinkId, u64> {
        self.engine.sent()
    }
}

/// Returns once all links have been gone for so long that the far end forgets the bond, too.
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

//! The near end: a bond to a member, with a link by each interface.

use super::{
    BondStream, Broken, Ended, GRACE, LinkStatus,
    engine::Engine,
    greet::{self, Greeted},
    link::{LinkIo, Meter},
    standing::Standing,
    state::Settings,
};
use crate::interfaces::Uplinks;
use std::{collections::BTreeMap, future::pending, io, num::NonZeroU32, sync::Arc, time::Duration};
use thalweg_bond::LinkId;
use thalweg_net::{
    Cause, Changes, Dialer, Hop, Interface, Medium, Route,
    channel::{ChannelError, Protocol},
    interfaces,
};
use thalweg_wire::bond::{BondId, Hello, Refusal, Target};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// How often the interfaces are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The first wait before an interface is tried again; twice as long each time.
const FIRST_WAIT: Duration = Duration::from_millis(250);

/// The longest.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Who says by which interfaces there are to be links; one that is listed twice has two.
pub type Interfaces = Arc<dyn Fn() -> io::Result<Vec<Interface>> + Send + Sync>;

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

/// What links are made with.
struct Making {
    dialer: Dialer,
    to: Hop,
    bond: BondId,
    engine: Arc<Engine>,
    standing: watch::Sender<Standing>,
    /// What may be used of the interfaces, where that is looked after.
    uplinks: Option<Uplinks>,
}

impl Bond {
    /// To the member `to`, by all usable interfaces.
    ///
    /// # Errors
    /// If the system gives no random number.
    pub fn begin(dialer: Dialer, to: Hop, settings: Settings) -> io::Result<Self> {
        Self::by(dialer, to, settings, Arc::new(interfaces))
    }

    /// By these interfaces alone.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn by(dialer: Dialer, to: Hop, settings: Settings, by: Interfaces) -> io::Result<Self> {
        Self::over(dialer, to, settings, (by, None))
    }

    /// The same; links pay for their interfaces, and end when those may not be used any more.
    pub(super) fn over(
        dialer: Dialer,
        to: Hop,
        settings: Settings,
        (by, uplinks): (Interfaces, Option<Uplinks>),
    ) -> io::Result<Self> {
        // Links are no bond's streams themselves.
        let to = Hop { medium: Medium::Underlay, ..to };
        let mut bond = BondId([0; 16]);
        getrandom::fill(&mut bond.0).map_err(io::Error::other)?;
        // The far end says its window in its first greeting; until then nothing is sent.
        let engine = Engine::new(settings, 0, true);
        let end = CancellationToken::new();
        let (told, standing) = watch::channel(Standing::default());
        let making =
            Making { dialer, to, bond, engine: Arc::clone(&engine), standing: told, uplinks };
        let making = Arc::new(making);
        let (watching, ended) = (Arc::clone(&engine), end.clone());
        tokio::spawn(async move {
            let why = tokio::select! {
                () = keep(Arc::clone(&making), by) => "the bond was given up",
                () = watching.watch() => "the bond was given up",
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

/// An interface, and which of the links by it.
type Place = (NonZeroU32, usize);

/// A place's turn: when it is tried again.
struct Turn {
    wait: Duration,
    at: Instant,
}

/// A link that is there, or is being made.
struct Busy {
    /// By this, as it was then.
    interface: Interface,
    stop: CancellationToken,
}

impl Busy {
    /// Whether the interface is not there any more, or lost an address: a connection is bound to one.
    fn is_lost(&self, found: &[Interface]) -> bool {
        let now = found.iter().find(|now| now.index == self.interface.index);
        now.is_none_or(|now| self.interface.addresses.iter().any(|at| !now.addresses.contains(at)))
    }
}

/// Keeps a link in each place, for ever.
async fn keep(making: Arc<Making>, by: Interfaces) {
    let mut links: JoinSet<(Place, bool)> = JoinSet::new();
    let mut busy: BTreeMap<Place, Busy> = BTreeMap::new();
    let mut turns: BTreeMap<Place, Turn> = BTreeMap::new();
    // Without the kernel's word interfaces are looked at each second.
    let mut changes = Changes::watch().ok();
    let mut number = 0;
    loop {
        // What cannot be listed now can be in a second.
        if let Ok(found) = by() {
            busy.values().filter(|link| link.is_lost(&found)).for_each(|link| link.stop.cancel());
            for (place, interface) in places(found) {
                let is_due = turns.get(&place).is_none_or(|turn| Instant::now() >= turn.at);
                if is_due && !busy.contains_key(&place) {
                    let (making, stop) = (Arc::clone(&making), CancellationToken::new());
                    let to_stop = Busy { interface: interface.clone(), stop: stop.clone() };
                    busy.insert(place, to_stop);
                    let link = async move { making.link(&interface, number, stop).await };
                    links.spawn(async move { (place, link.await) });
                    number += 1;
                }
            }
        }
        tokio::select! {
            Some(ended) = links.join_next() => {
                // A link's task does not panic; if one did, its place is not tried again.
                let Ok((place, was_there)) = ended else { continue };
                busy.remove(&place);
                let before = turns.get(&place).map_or(FIRST_WAIT, |turn| turn.wait * 2);
                let wait = if was_there { FIRST_WAIT } else { before.min(LONGEST_WAIT) };
                turns.insert(place, Turn { wait, at: Instant::now() + wait });
            }
            () = changed(making.uplinks.as_ref(), &mut changes) => {}
            () = sleep(LOOK) => {}
        }
    }
}

/// Where links are to be: one that is listed several times has as many.
fn places(found: Vec<Interface>) -> Vec<(Place, Interface)> {
    let mut counts: BTreeMap<NonZeroU32, usize> = BTreeMap::new();
    let place = |interface: Interface| {
        let count = counts.entry(interface.index).or_default();
        *count += 1;
        ((interface.index, *count), interface)
    };
    found.into_iter().map(place).collect()
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

/// Waits until interfaces have changed, or what is allowed of them.
async fn changed(uplinks: Option<&Uplinks>, changes: &mut Option<Changes>) {
    match (uplinks, changes.as_mut()) {
        (Some(uplinks), _) => uplinks.changed().await,
        (None, Some(heard)) => {
            if heard.next().await.is_err() {
                *changes = None;
            }
        }
        (None, None) => pending().await,
    }
}

/// Why a link did not come about, and whether the far end said so.
struct Failed {
    why: String,
    is_refusal: bool,
    /// It does not admit us: no link will come any more.
    is_for_good: bool,
}

impl Making {
    /// One link by this interface, to its end; whether there was one.
    async fn link(&self, interface: &Interface, number: u32, stop: CancellationToken) -> bool {
        let dialled = tokio::select! {
            dialled = self.dial(interface.index, number) => dialled,
            () = stop.cancelled() => return false,
        };
        let failed = match dialled {
            Ok(Ok((link, window))) => {
                self.engine.far_window(window);
                self.standing.send_modify(Standing::came);
                let link = self.paying(link.by(&interface.name), &interface.name);
                let until = stop.cancelled();
                let ended = self.engine.run_link_until(LinkId(number), link, until).await;
                self.standing.send_modify(Standing::went);
                return matches!(ended, Ended::Lost(_) | Ended::Bye);
            }
            Ok(Err(why)) => {
                // A far end that forgot the bond has forgotten its streams.
                if why == Refusal::Unknown {
                    self.engine.break_off(&why.to_string());
                }
                let is_refusal = why != Refusal::Number;
                Failed { why: why.to_string(), is_refusal, is_for_good: false }
            }
            Err(failed) => failed,
        };
        let why = format!("{}: {}", interface.name, failed.why);
        if failed.is_for_good && self.standing.borrow().live == 0 {
            self.engine.break_off(&why);
        }
        self.standing.send_modify(|standing| standing.failed(why, failed.is_refusal));
        false
    }

    /// The link with what its interface's policy asks of it.
    fn paying(&self, link: LinkIo, name: &str) -> LinkIo {
        let Some(uplinks) = &self.uplinks else { return link };
        let policy = uplinks.table().settings().policy(name);
        let link = if policy.may_spend() { link } else { link.metered() };
        link.paying(Meter::new(uplinks.clone(), name))
    }

    async fn dial(&self, interface: NonZeroU32, link: u32) -> Result<Greeted, Failed> {
        let route = Route::direct().by_interface(interface);
        let ahead = self.uplinks.as_ref().and_then(|u| u.table().ahead(interface.get()));
        let dialer = match ahead {
            Some(ahead) => self.dialer.clone().receiving(ahead as usize),
            None => self.dialer.clone(),
        };
        let dialled = dialer.channel(&route, &self.to, Protocol::Bond).await;
        let channel = dialled.map_err(|why| Failed {
            is_refusal: matches!(why.cause, Cause::Channel(_)),
            is_for_good: matches!(why.cause, Cause::Channel(ChannelError::NotAdmitted)),
            why: why.to_string(),
        })?;
        let goes_on = self.standing.borrow().most > 0;
        let hello = Hello { bond: self.bond, link, window: self.engine.window(), goes_on };
        let greeted = greet::greet(channel, &hello).await;
        // Who does not admit us may say so only now.
        greeted.map_err(|why| {
            let is_refusal = ChannelError::is_not_admitted(&why);
            Failed { why: why.to_string(), is_refusal, is_for_good: is_refusal }
        })
    }
}

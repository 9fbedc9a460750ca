//! Manages a receiver's parents: which are active, which are left, and which come next.

use super::{
    incoming_legs::IncomingLegs,
    parent_selector::ParentSelector,
    reception::{ParentName, Reception},
};
use crate::{
    leg::{
        Leg, SymbolScheduler,
        child::{self, LegEnd, PullContext, ReceivedBytes},
        dialer_for, open,
    },
    ring::{DiskMessage, Intake, NodeRing, Sink, stream},
    store::Store,
};
use std::{io, sync::Arc, time::Duration};
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_net::channel::Protocol;
use thalweg_units::Rate;
use thalweg_wire::{
    cast::{Candidate, CastId, Fault, Opening, Refusal, Report, ServiceMode},
    mesh::Name,
};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_util::sync::CancellationToken;

/// Interval for reviewing parents if nothing happens.
const LOOK: Duration = Duration::from_millis(500);

/// Interval of progress reports to the source.
const ACCOUNT: Duration = Duration::from_secs(1);

/// The time in which the source must dial after a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens legs to parents. One conductor serves all receptions of a node.
#[derive(Clone, Debug)]
pub struct Conductor {
    /// Dials other receivers.
    pub dialer: MemberDialer,
}

/// What a running reception needs.
pub struct Session<'a> {
    pub reception: &'a Arc<Reception>,
    pub store: &'a Arc<Store>,
    /// Decides which symbols are requested from which parent.
    pub scheduler: Arc<SymbolScheduler>,
    /// Received symbols, for the disk.
    pub disk: mpsc::Sender<DiskMessage>,
    /// The ring from which symbols are forwarded.
    pub node: Arc<NodeRing>,
    /// All symbols held, repair symbols included.
    pub intake: Arc<Intake>,
}

/// How a leg to a parent ended.
pub enum ParentEnd {
    /// The leg was established, and ended.
    Left(LegEnd),
    Refused(Refusal),
    /// The parent could not be reached.
    Unreached(String),
}

impl Conductor {
    /// Runs until the object is complete, then closes all legs.
    pub async fn conduct(&self, session: Session<'_>) {
        let mut legs: JoinSet<(ParentName, ParentEnd)> = JoinSet::new();
        let mut selector = ParentSelector::default();
        let mut parents = session.reception.parents();
        let (mut changes, mut looks) = (session.store.changes(), interval(LOOK));
        let mut accounts = interval(ACCOUNT);
        looks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        accounts.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while !session.store.have().is_complete() {
            let wanted = Arc::clone(&parents.borrow_and_update());
            for (who, fault) in selector.review(&wanted) {
                leave_parent(&**session.reception, &mut selector, who, fault);
            }
            for candidate in selector.next(&wanted) {
                let (got, end) =
                    (session.reception.begin_leg(&candidate.name), CancellationToken::new());
                selector.begin(&candidate, Arc::clone(&got), end.clone());
                self.begin(&session, &mut legs, candidate, got, end);
            }
            tokio::select! {
                Some(ended) = legs.join_next() => match ended {
                    Ok((who, end)) => note(&session, &mut selector, who, end),
                    // A leg's task does not panic; if one did, forgetting the state lets its parent be tried again.
                    Err(_) => selector.forget(),
                },
                _ = parents.changed() => {}
                _ = looks.tick() => {}
                _ = accounts.tick() => {
                    session.reception.tell(Report::Account(session.reception.account(true)));
                }
                () = session.store.completed(&mut changes) => {}
            }
        }
        // Legs say goodbye; those that do not end within 1 s are aborted.
        _ = timeout(Duration::from_secs(1), async { while legs.join_next().await.is_some() {} })
            .await;
        legs.shutdown().await;
    }

    fn begin(
        &self,
        session: &Session<'_>,
        legs: &mut JoinSet<(ParentName, ParentEnd)>,
        candidate: Candidate,
        got: Arc<ReceivedBytes>,
        end: CancellationToken,
    ) {
        let (reception, dialer) = (Arc::clone(session.reception), self.dialer.clone());
        let Candidate { name: who, bps, want } = candidate;
        let taking = session.taking(want, got, Rate::from_bps(bps.unwrap_or(0)));
        legs.spawn(async move {
            let taking = async {
                match leg_to(&dialer, &*reception, &who, want).await {
                    Ok(leg) => ParentEnd::Left(taking.run(leg).await),
                    Err(end) => end,
                }
            };
            let ended = tokio::select! {
                ended = taking => ended,
                () = end.cancelled() => ParentEnd::Left(LegEnd::Done),
            };
            reception.end_leg(&who);
            (who, ended)
        });
    }
}

/// How symbols are received from a parent.
enum ReceiveMode {
    /// Each symbol is requested.
    Pull(PullContext),
    /// The parent streams symbols.
    Stream(Sink, Arc<ReceivedBytes>),
}

impl ReceiveMode {
    async fn run(self, leg: Leg) -> LegEnd {
        match self {
            Self::Pull(child) => child::pull(child, leg).await,
            Self::Stream(sink, got) => stream(sink, got, leg).await,
        }
    }
}

impl Session<'_> {
    fn taking(&self, want: ServiceMode, got: Arc<ReceivedBytes>, expected: Rate) -> ReceiveMode {
        let (node, disk) = (Arc::clone(&self.node), self.disk.clone());
        let scheduler = Arc::clone(&self.scheduler);
        match want {
            ServiceMode::Pull => {
                let store = Arc::clone(self.store);
                ReceiveMode::Pull(PullContext { store, node, scheduler, disk, got, expected })
            }
            ServiceMode::Stream => {
                let intake = Arc::clone(&self.intake);
                ReceiveMode::Stream(Sink::Store { node, intake, scheduler, disk }, got)
            }
        }
    }
}

/// A node's side of one cast, a reception or a relay, as needed to reach parents.
pub trait Participant {
    /// The cast, and the pass that authorizes this node at its parents.
    fn pass(&self) -> (CastId, Vec<u8>);

    /// Sends a report to the source. Returns whether it is connected and accepts reports.
    fn tell(&self, report: Report) -> bool;

    /// Legs that the source opens when it is called.
    fn incoming(&self) -> &IncomingLegs;
}

impl Participant for Reception {
    fn pass(&self) -> (CastId, Vec<u8>) {
        (self.home.id, Self::pass(self))
    }

    fn tell(&self, report: Report) -> bool {
        Self::tell(self, report)
    }

    fn incoming(&self) -> &IncomingLegs {
        &self.incoming
    }
}

/// Opens a leg to a parent.
///
/// # Errors
/// Why no leg could be opened.
pub async fn leg_to(
    dialer: &MemberDialer,
    participant: &(impl Participant + Sync),
    who: &ParentName,
    want: ServiceMode,
) -> Result<Leg, ParentEnd> {
    match who {
        None => from_source(participant, want).await,
        Some(name) => from_peer(dialer, participant, name, want).await,
    }
}

async fn from_source(
    participant: &(impl Participant + Sync),
    want: ServiceMode,
) -> Result<Leg, ParentEnd> {
    let nobody = || ParentEnd::Unreached("the source cannot be reached".to_owned());
    participant.incoming().forget().await;
    if !participant.tell(Report::RequestLeg(want)) {
        return Err(nobody());
    }
    match timeout(CALL_TIMEOUT, participant.incoming().next(want)).await {
        Ok(Some(leg)) => Ok(leg),
        _ => Err(nobody()),
    }
}

async fn from_peer(
    dialer: &MemberDialer,
    participant: &(impl Participant + Sync),
    name: &Name,
    want: ServiceMode,
) -> Result<Leg, ParentEnd> {
    let unreached = |why: String| ParentEnd::Unreached(why);
    let dialer = dialer_for(want, dialer.clone());
    let channel = dialer.channel(name, &[], Protocol::Cast).await;
    let channel = channel.map_err(|why| unreached(why.to_string()))?;
    let (cast, pass) = participant.pass();
    let opening = Opening::Hello { cast, pass, want };
    match open(channel, &opening).await {
        Ok(Ok(leg)) => Ok(leg),
        Ok(Err(refusal)) => Err(ParentEnd::Refused(refusal)),
        Err(why) => Err(unreached(why.to_string())),
    }
}

fn note(session: &Session<'_>, selector: &mut ParentSelector, who: ParentName, end: ParentEnd) {
    note_end(&**session.reception, selector, who, end);
}

/// Records the end of a leg, and reports a fault to the source.
pub fn note_end(
    participant: &impl Participant,
    selector: &mut ParentSelector,
    who: ParentName,
    end: ParentEnd,
) {
    let fault = match end {
        ParentEnd::Left(left) => left.fault().map(|fault| (fault, left.to_string())),
        ParentEnd::Refused(Refusal::Unknown) => {
            // The parent may not have heard of the cast yet.
            selector.end(&who);
            return selector.wait_for(who);
        }
        ParentEnd::Refused(why) => Some((Fault::Refused, why.to_string())),
        ParentEnd::Unreached(why) => Some((Fault::Lost, why)),
    };
    selector.end(&who);
    if let Some(fault) = fault {
        leave_parent(participant, selector, who, fault);
    }
}

/// Records that a parent is left for a fault, and reports it to the source.
pub fn leave_parent(
    participant: &impl Participant,
    selector: &mut ParentSelector,
    who: ParentName,
    (fault, why): (Fault, String),
) {
    selector.fail(who.clone(), fault == Fault::Corrupt);
    participant.tell(Report::Left { name: who, fault, why }.cut());
}

/// I/O errors count as lost connections.
impl From<io::Error> for ParentEnd {
    fn from(why: io::Error) -> Self {
        Self::Left(LegEnd::Lost(why))
    }
}

//! A receiver's parents: who is one now, who is left, who comes next.

use super::{
    incoming::Incoming,
    reception::{Reception, Who},
    score::Score,
};
use crate::{
    leg::{
        Desk, Leg, carried_for,
        child::{self, Child, Got, Left},
        open,
    },
    ring::{Intake, NodeRing, Sink, ToDisk, stream},
    store::Store,
};
use std::{io, sync::Arc, time::Duration};
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_net::channel::Protocol;
use thalweg_units::Rate;
use thalweg_wire::{
    cast::{Candidate, CastId, Fault, Opening, Refusal, Report, Want},
    mesh::Name,
};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_util::sync::CancellationToken;

/// How often parents are looked at, if nothing happens.
const LOOK: Duration = Duration::from_millis(500);

/// How often the source hears how far it is.
const ACCOUNT: Duration = Duration::from_secs(1);

/// The source is to dial so soon after it was called.
const CALLED: Duration = Duration::from_secs(10);

/// Opens legs; one for all receptions of a node.
#[derive(Clone, Debug)]
pub struct Conductor {
    /// Who dials other receivers.
    pub reach: MemberDialer,
}

/// What is conducted.
pub struct Told<'a> {
    /// The cast.
    pub reception: &'a Arc<Reception>,
    /// Its object.
    pub store: &'a Arc<Store>,
    /// Who is asked for what.
    pub desk: Arc<Desk>,
    /// To the disk.
    pub disk: mpsc::Sender<ToDisk>,
    /// What is handed on from here.
    pub node: Arc<NodeRing>,
    /// What is held, repair symbols included.
    pub intake: Arc<Intake>,
}

/// A leg came to its end.
pub enum End {
    /// Its own.
    Left(Left),
    /// The parent does not want to.
    Refused(Refusal),
    /// Nobody was there.
    Unreached(String),
}

impl Conductor {
    /// Until all is here. Legs end with this.
    pub async fn conduct(&self, told: Told<'_>) {
        let mut legs: JoinSet<(Who, End)> = JoinSet::new();
        let mut score = Score::default();
        let mut parents = told.reception.parents();
        let (mut news, mut looks) = (told.store.news(), interval(LOOK));
        let mut accounts = interval(ACCOUNT);
        looks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        accounts.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while !told.store.have().is_complete() {
            let wanted = Arc::clone(&parents.borrow_and_update());
            for (who, fault) in score.review(&wanted) {
                left(&**told.reception, &mut score, who, fault);
            }
            for candidate in score.next(&wanted) {
                let (got, end) = (told.reception.opened(&candidate.name), CancellationToken::new());
                score.begin(&candidate, Arc::clone(&got), end.clone());
                self.begin(&told, &mut legs, candidate, got, end);
            }
            tokio::select! {
                Some(ended) = legs.join_next() => match ended {
                    Ok((who, end)) => note(&told, &mut score, who, end),
                    // A leg's task does not panic; if one did, its parent may be tried again.
                    Err(_) => score.forget(),
                },
                _ = parents.changed() => {}
                _ = looks.tick() => {}
                _ = accounts.tick() => {
                    told.reception.tell(Report::Account(told.reception.account(true)));
                }
                () = told.store.completed(&mut news) => {}
            }
        }
        // They say goodbye; those that hang are cut.
        _ = timeout(Duration::from_secs(1), async { while legs.join_next().await.is_some() {} })
            .await;
        legs.shutdown().await;
    }

    fn begin(
        &self,
        told: &Told<'_>,
        legs: &mut JoinSet<(Who, End)>,
        candidate: Candidate,
        got: Arc<Got>,
        end: CancellationToken,
    ) {
        let (reception, reach) = (Arc::clone(told.reception), self.reach.clone());
        let Candidate { name: who, bps, want } = candidate;
        let taking = told.taking(want, got, Rate::from_bps(bps.unwrap_or(0)));
        legs.spawn(async move {
            let taking = async {
                match leg_to(&reach, &*reception, &who, want).await {
                    Ok(leg) => End::Left(taking.run(leg).await),
                    Err(end) => end,
                }
            };
            let ended = tokio::select! {
                ended = taking => ended,
                () = end.cancelled() => End::Left(Left::Done),
            };
            reception.closed(&who);
            (who, ended)
        });
    }
}

/// How a parent is taken from.
enum Taking {
    /// Each symbol is asked for.
    Pull(Child),
    /// It gives what comes.
    Stream(Sink, Arc<Got>),
}

impl Taking {
    async fn run(self, leg: Leg) -> Left {
        match self {
            Self::Pull(child) => child::pull(child, leg).await,
            Self::Stream(sink, got) => stream(sink, got, leg).await,
        }
    }
}

impl Told<'_> {
    fn taking(&self, want: Want, got: Arc<Got>, expected: Rate) -> Taking {
        let (node, disk) = (Arc::clone(&self.node), self.disk.clone());
        let desk = Arc::clone(&self.desk);
        match want {
            Want::Pull => {
                let store = Arc::clone(self.store);
                Taking::Pull(Child { store, node, desk, disk, got, expected })
            }
            Want::Stream => {
                let intake = Arc::clone(&self.intake);
                Taking::Stream(Sink::Store { node, intake, desk, disk }, got)
            }
        }
    }
}

/// How a node finds its parents of one cast.
pub trait Line {
    /// The cast, and with what this node shows itself to others.
    fn pass(&self) -> (CastId, Vec<u8>);

    /// Tells the source, if it is there and listens.
    fn tell(&self, report: Report) -> bool;

    /// Legs that the source opens when it is called.
    fn incoming(&self) -> &Incoming;
}

impl Line for Reception {
    fn pass(&self) -> (CastId, Vec<u8>) {
        (self.home.id, Self::pass(self))
    }

    fn tell(&self, report: Report) -> bool {
        Self::tell(self, report)
    }

    fn incoming(&self) -> &Incoming {
        &self.incoming
    }
}

/// A leg to a parent.
///
/// # Errors
/// Why there is none.
pub async fn leg_to(
    reach: &MemberDialer,
    line: &(impl Line + Sync),
    who: &Who,
    want: Want,
) -> Result<Leg, End> {
    match who {
        None => from_source(line, want).await,
        Some(name) => from_peer(reach, line, name, want).await,
    }
}

async fn from_source(line: &(impl Line + Sync), want: Want) -> Result<Leg, End> {
    let nobody = || End::Unreached("the source is not there".to_owned());
    line.incoming().forget().await;
    if !line.tell(Report::Call(want)) {
        return Err(nobody());
    }
    match timeout(CALLED, line.incoming().next(want)).await {
        Ok(Some(leg)) => Ok(leg),
        _ => Err(nobody()),
    }
}

async fn from_peer(
    reach: &MemberDialer,
    line: &(impl Line + Sync),
    name: &Name,
    want: Want,
) -> Result<Leg, End> {
    let unreached = |why: String| End::Unreached(why);
    let reach = carried_for(want, reach.clone());
    let channel = reach.channel(name, &[], Protocol::Cast).await;
    let channel = channel.map_err(|why| unreached(why.to_string()))?;
    let (cast, pass) = line.pass();
    let opening = Opening::Hello { cast, pass, want };
    match open(channel, &opening).await {
        Ok(Ok(leg)) => Ok(leg),
        Ok(Err(refusal)) => Err(End::Refused(refusal)),
        Err(why) => Err(unreached(why.to_string())),
    }
}

/// A leg has ended: the source is told, and the parent is remembered.
fn note(told: &Told<'_>, score: &mut Score, who: Who, end: End) {
    note_end(&**told.reception, score, who, end);
}

/// A leg has ended: the source is told, and the parent is remembered.
pub fn note_end(line: &impl Line, score: &mut Score, who: Who, end: End) {
    let fault = match end {
        End::Left(left) => left.fault().map(|fault| (fault, left.to_string())),
        End::Refused(Refusal::Unknown) => {
            // It may just not have heard of it yet.
            score.ended(&who);
            return score.wait_for(who);
        }
        End::Refused(why) => Some((Fault::Refused, why.to_string())),
        End::Unreached(why) => Some((Fault::Lost, why)),
    };
    score.ended(&who);
    if let Some(fault) = fault {
        left(line, score, who, fault);
    }
}

/// A parent is left: the source is told.
pub fn left(line: &impl Line, score: &mut Score, who: Who, (fault, why): (Fault, String)) {
    score.fail(who.clone(), fault == Fault::Corrupt);
    line.tell(Report::Left { name: who, fault, why }.cut());
}

/// A connection that ended, as it is told.
impl From<io::Error> for End {
    fn from(why: io::Error) -> Self {
        Self::Left(Left::Lost(why))
    }
}

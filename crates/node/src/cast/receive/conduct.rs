//! A receiver's parents: who is one now, who is left, who comes next.

use super::{
    reception::{Reception, Who},
    score::Score,
};
use crate::{
    cast::{
        leg::{
            Desk, Leg,
            child::{self, Child, Got, Left, Proven},
            open,
        },
        store::Store,
    },
    gather::Reach,
};
use std::{io, sync::Arc, time::Duration};
use thalweg_net::channel::Protocol;
use thalweg_units::Rate;
use thalweg_wire::{
    cast::{Candidate, Fault, Opening, Refusal, Report, Want},
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
    pub reach: Reach,
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
    pub proven: mpsc::Sender<Proven>,
}

/// A leg came to its end.
enum End {
    Left(Left),
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
                left(&told, &mut score, who, fault);
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
                _ = until_complete(told.store, &mut news) => {}
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
        let child = Child {
            store: Arc::clone(told.store),
            desk: Arc::clone(&told.desk),
            proven: told.proven.clone(),
            got,
            expected: Rate::from_bps(candidate.bps.unwrap_or(0)),
        };
        let who = candidate.name;
        legs.spawn(async move {
            let leg = async {
                match &who {
                    None => from_source(&reception).await,
                    Some(name) => from_peer(&reach, &reception, name).await,
                }
            };
            let pulling = async {
                match leg.await {
                    Ok(leg) => End::Left(child::pull(child, leg).await),
                    Err(end) => end,
                }
            };
            let ended = tokio::select! {
                ended = pulling => ended,
                () = end.cancelled() => End::Left(Left::Done),
            };
            reception.closed(&who);
            (who, ended)
        });
    }
}

async fn until_complete(store: &Store, news: &mut tokio::sync::watch::Receiver<u64>) {
    // The store has the sender: this ends with the last symbol, or not at all.
    _ = news.wait_for(|_| store.have().is_complete()).await;
}

async fn from_source(reception: &Reception) -> Result<Leg, End> {
    let nobody = || End::Unreached("the source is not there".to_owned());
    if !reception.tell(Report::Call(Want::Pull)) {
        return Err(nobody());
    }
    match timeout(CALLED, reception.next_leg()).await {
        Ok(Some(leg)) => Ok(leg),
        _ => Err(nobody()),
    }
}

async fn from_peer(reach: &Reach, reception: &Reception, name: &Name) -> Result<Leg, End> {
    let unreached = |why: String| End::Unreached(why);
    let channel = reach.channel(name, &[], Protocol::Cast).await;
    let channel = channel.map_err(|why| unreached(why.to_string()))?;
    let (cast, pass) = (reception.home.id, reception.pass());
    let opening = Opening::Hello { cast, pass, want: Want::Pull };
    match open(channel, &opening).await {
        Ok(Ok(leg)) => Ok(leg),
        Ok(Err(refusal)) => Err(End::Refused(refusal)),
        Err(why) => Err(unreached(why.to_string())),
    }
}

/// A leg has ended: the source is told, and the parent is remembered.
fn note(told: &Told<'_>, score: &mut Score, who: Who, end: End) {
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
        left(told, score, who, fault);
    }
}

fn left(told: &Told<'_>, score: &mut Score, who: Who, (fault, why): (Fault, String)) {
    score.fail(who.clone(), fault == Fault::Corrupt);
    told.reception.tell(Report::Left { name: who, fault, why }.cut());
}

/// A connection that ended, as it is told.
impl From<io::Error> for End {
    fn from(why: io::Error) -> Self {
        Self::Left(Left::Lost(why))
    }
}

//! Measures one link once.

use crate::trains::{
    Direction, MeasureError, OpenError, Payer, Session, SessionError, Trains, open, run,
};
use std::time::Duration;
use thalweg_measure::{
    estimators::{Estimator, Finding, Pace, Quantity},
    overlay::LinkMethod,
    train::{Doubt, sizes},
};
use thalweg_mesh::member_dialer::{DialMemberError, MemberDialer};
use thalweg_net::Stream;
use thalweg_units::Rate;
use thalweg_wire::mesh::Name;
use thiserror::Error;

/// Why a measurement has no result.
#[derive(Debug, Error)]
pub(super) enum ProbeError {
    /// One of the two hosts is too busy to time probes.
    #[error("{0}")]
    Busy(String),
    /// The tool has a result, about which there is a doubt.
    #[error("{0}")]
    Doubtful(Doubt),
    /// No session could be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The session or the tool failed.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// The method does not use trains.
    #[error("the method {0:?} does not use probe trains")]
    Trainless(LinkMethod),
    /// The tool found another quantity.
    #[error("the tool did not find an available bandwidth")]
    Nothing,
}

impl ProbeError {
    /// Whether no connection to the node could be made.
    pub fn is_unreachable(&self) -> bool {
        matches!(
            self,
            Self::Open(OpenError::Dial(
                DialMemberError::Dial { .. } | DialMemberError::Relayed { .. }
            ))
        )
    }
}

impl From<SessionError> for ProbeError {
    fn from(why: SessionError) -> Self {
        match why {
            SessionError::Pacing(why) => Self::Busy(why.to_string()),
            why => Self::Measure(MeasureError::Session { why, so_far: Default::default() }),
        }
    }
}

/// Which link to measure, how, and for how long at most.
pub(super) struct ProbeTask<'a> {
    pub to: &'a Name,
    pub how: LinkMethod,
    pub longest: Duration,
    pub accepts_busy: bool,
    pub most: Option<Rate>,
    pub payer: Payer,
}

/// Measures the link. Returns the result, and the bytes spent in any case.
pub(super) async fn probe(
    dialer: &MemberDialer,
    trains: &Trains,
    task: ProbeTask<'_>,
) -> (Result<Finding, ProbeError>, u64) {
    let carries = task.how == LinkMethod::Riding;
    let mut session = match open(trains, dialer, task.to, carries).await {
        Ok((session, _)) => session,
        Err(why) => return (Err(why.into()), 0),
    };
    session.accept_busy(task.accepts_busy);
    session.pay_by(task.payer.clone());
    let found = measure(&mut session, &task).await;
    session.close().await;
    (found, task.payer.spent())
}

async fn measure(
    session: &mut Session<Stream>,
    task: &ProbeTask<'_>,
) -> Result<Finding, ProbeError> {
    let [_, there] = session.calibrations();
    if !there.is_valid && !task.accepts_busy {
        return Err(ProbeError::Busy("the member's host is too busy to time probes".to_owned()));
    }
    let largest = session.fitting(Direction::There, &sizes(session.overhead())).await?;
    let mut tool = tool(task, session, largest)?;
    let found = run(session, tool.as_mut(), Direction::There, task.longest, &mut |_| {}).await;
    let found = found.map_err(|error| match error {
        MeasureError::Session { why: why @ SessionError::Pacing(_), .. } => why.into(),
        error => ProbeError::Measure(error),
    })?;
    if let (Some(doubt), false) = (found.doubts.first(), task.accepts_busy) {
        return Err(ProbeError::Doubtful(*doubt));
    }
    let all = found.findings.into_iter();
    all.into_iter().find(|f| f.of == Quantity::AvailableBandwidth).ok_or(ProbeError::Nothing)
}

fn tool(
    task: &ProbeTask<'_>,
    session: &Session<Stream>,
    largest: u16,
) -> Result<Box<dyn Estimator + Send>, ProbeError> {
    let mut ends = session.ends(Direction::There, largest);
    // The operator's bound on the rate of measurements applies to trains as well; the result is then a lower bound.
    ends.sender.honest = task.most.map_or(ends.sender.honest, |most| ends.sender.honest.min(most));
    Ok(match task.how {
        LinkMethod::Sparse => Box::new(ends.pathchirp(false)),
        LinkMethod::Riding => Box::new(ends.pathload(Pace::Fast, true)),
        LinkMethod::Trains => Box::new(ends.pathload(Pace::Fast, false)),
        // Passive and bulk measurements belong to the prober. They are never chosen here, because no link has rivals.
        how @ (LinkMethod::Passive | LinkMethod::Bulk) => return Err(ProbeError::Trainless(how)),
    })
}

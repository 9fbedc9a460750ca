//! One link, measured once.

use crate::{
    gather::Reach,
    trains::{MeasureError, OpenError, Payer, Session, SessionError, Trains, Way, open, run},
};
use std::time::Duration;
use thalweg_measure::{
    estimators::{
        Estimator, Finding, Pace, Pathchirp, PathchirpSettings, Pathload, PathloadSettings,
        Quantity,
    },
    overlay::How,
    train::{Calibration, Doubt, LARGEST},
};
use thalweg_net::Stream;
use thalweg_units::Rate;
use thalweg_wire::mesh::Name;
use thiserror::Error;

/// Probes that are tried, the longest first, as for `thalweg measure`.
const SIZES: [u16; 5] = [LARGEST, 1412, 1372, 1232, 548];

/// Nothing was found out.
#[derive(Debug, Error)]
pub(super) enum Unprobed {
    /// This host or the other is not calm.
    #[error("{0}")]
    Busy(String),
    /// The tool has said something, against which something speaks.
    #[error("{0}")]
    Doubtful(Doubt),
    /// No session.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The session, or the tool.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// The tool told of something else.
    #[error("the tool found no available bandwidth")]
    Nothing,
}

impl From<SessionError> for Unprobed {
    fn from(why: SessionError) -> Self {
        match why {
            SessionError::Dishonest(why) => Self::Busy(why.to_string()),
            why => Self::Measure(MeasureError::Session { why, so_far: Default::default() }),
        }
    }
}

/// Which link, how, and for how long at most.
pub(super) struct Task<'a> {
    pub to: &'a Name,
    pub how: How,
    pub longest: Duration,
    pub accepts_busy: bool,
    pub most: Option<Rate>,
    pub payer: Payer,
}

/// Has it measured; what was found, and the bytes that it cost, whatever came of it.
pub(super) async fn probe(
    reach: &Reach,
    trains: &Trains,
    task: Task<'_>,
) -> (Result<Finding, Unprobed>, u64) {
    let carries = task.how == How::Riding;
    let mut session = match open(trains, reach, task.to, carries).await {
        Ok((session, _)) => session,
        Err(why) => return (Err(why.into()), 0),
    };
    session.accept_busy(task.accepts_busy);
    session.pay_by(task.payer.clone());
    let found = measure(&mut session, &task).await;
    session.close().await;
    (found, task.payer.spent())
}

async fn measure(session: &mut Session<Stream>, task: &Task<'_>) -> Result<Finding, Unprobed> {
    let [_, there] = session.calibrations();
    if !there.is_valid && !task.accepts_busy {
        return Err(Unprobed::Busy("the member's host is too busy to time probes".to_owned()));
    }
    let largest = session.fitting(Way::There, &SIZES).await?;
    let mut tool = tool(task, session, largest);
    let found = run(session, tool.as_mut(), Way::There, task.longest, &mut |_| {}).await;
    let found = found.map_err(|error| match error {
        MeasureError::Session { why: why @ SessionError::Dishonest(_), .. } => why.into(),
        error => Unprobed::Measure(error),
    })?;
    if let (Some(doubt), false) = (found.doubts.first(), task.accepts_busy) {
        return Err(Unprobed::Doubtful(*doubt));
    }
    let all = found.findings.into_iter();
    all.into_iter().find(|f| f.of == Quantity::AvailableBandwidth).ok_or(Unprobed::Nothing)
}

fn tool(task: &Task<'_>, session: &Session<Stream>, largest: u16) -> Box<dyn Estimator + Send> {
    let [sender, receiver] = session.hosts();
    let receive_latency = receiver.receive_latency;
    // Who bounds the rate of measurements bounds that of trains: what they find then is a lower bound.
    let honest = task.most.map_or(sender.honest, |most| sender.honest.min(most));
    let host = Calibration { receive_latency, honest, ..sender };
    match task.how {
        How::Sparse => {
            let of = PathchirpSettings { may_carry: false, ..PathchirpSettings::default() };
            let size = of.size.min(largest);
            let most = host.highest(size).as_bps() as f64;
            Box::new(Pathchirp::new(PathchirpSettings { size, most, receive_latency, ..of }))
        }
        _ => {
            let (pace, rtt, may_carry) = (Pace::Fast, session.rtt(), task.how == How::Riding);
            let is_coalesced = false;
            let of = PathloadSettings { pace, rtt, largest, host, is_coalesced, may_carry };
            Box::new(Pathload::new(of))
        }
    }
}

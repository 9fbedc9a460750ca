//! A transfer to an intermediate: the intermediate fetches, and reports the end to this host.

use super::{
    blame::Suspect,
    draw::Moved,
    parcel::{Parcel, Proof},
    pool::Fault,
    scene::Scene,
};
use std::{sync::Arc, time::Duration};
use thalweg_wire::object::{Check, Failure, Reply, Request, Ticket};

/// Has `to` fetch the parcel from `from`; `then` is the node that will fetch it from `to`. If the transfer fails, the
/// parcel becomes empty: its data waits again, or stays with its holder.
pub async fn fetch(
    scene: &Arc<Scene>,
    parcel: &mut Parcel,
    (from, to): (u32, u32),
    then: Option<u32>,
) -> Moved {
    let id = scene.id();
    let before = (parcel.holder(), parcel.id);
    let order = Request::Fetch {
        id,
        from: scene.name(from).clone(),
        tickets: match parcel.onward.take() {
            Some(onward) => vec![onward],
            None => parcel.tickets.clone(),
        },
        bytes: parcel.bytes(),
        then: then.map(|then| scene.name(then).clone()),
        note: scene.marker().note(&parcel.parts),
    };
    let fetched = fetched(scene, parcel, (from, to), &order).await;
    match fetched {
        Ok((micros, bytes)) => {
            parcel.id = id;
            // The parcel has moved on, so the previous holder can drop it.
            if let (Some(holder), id) = before {
                scene.drop_at(holder, id);
            } else {
                let (scene, tickets) = (scene.clone(), parcel.tickets.clone());
                let source = parcel.source;
                parcel.proof = Some(tokio::spawn(proof(scene, source, tickets)));
            }
            Moved { bytes, moving: Duration::from_micros(micros), failed: None }
        }
        Err(why) => {
            // It may hold the data despite the error.
            scene.drop_at(to, id);
            let empty = Parcel::new(parcel.source, Vec::new(), before.1);
            scene.leave(std::mem::replace(parcel, empty));
            Moved { bytes: 0, moving: Duration::ZERO, failed: Some(why) }
        }
    }
}

/// Returns the time during which bytes moved, µs, and the number of bytes.
async fn fetched(
    scene: &Scene,
    parcel: &mut Parcel,
    (from, to): (u32, u32),
    order: &Request,
) -> Result<(u64, u64), String> {
    let fault = match scene.ask(to, order).await {
        Ok(Reply::Fetched { parts, micros, most, ticket }) if parts.len() == parcel.parts.len() => {
            // A successful fetch from `to` shows that `to` works; its own report does not.
            scene.works(Suspect::Node(from));
            scene.works(Suspect::Leg(from, to));
            scene.holds(to, most);
            let came = parcel.parts.iter().zip(&parts).filter(|(_, part)| part.is_ok());
            let bytes = came.map(|(part, _)| part.bytes()).sum();
            let checks: Vec<Option<Check>> = parts.into_iter().map(Result::ok).collect();
            parcel.held.push((to, checks));
            parcel.onward = ticket;
            return Ok((micros, bytes));
        }
        Ok(_) => Fault::Gone("its answer does not match the request".to_owned()),
        Err(fault) => fault,
    };
    let why = format!("{}: {fault}", scene.name(to));
    match fault {
        // Being full or busy is not a fault.
        Fault::Refused(Failure::Full(_) | Failure::Busy) => {}
        Fault::Refused(Failure::Upstream { .. }) => scene.failed(Suspect::Leg(from, to), &why),
        _ => scene.failed(Suspect::Node(to), &why),
    }
    Err(why)
}

/// Returns the source's hashes of the data it sent for these tickets.
async fn proof(scene: Arc<Scene>, source: u32, tickets: Vec<Ticket>) -> Proof {
    match scene.ask(source, &Request::Sent(tickets)).await {
        Ok(Reply::Checks(checks)) => {
            let known: Option<Vec<_>> = checks.into_iter().collect();
            known.map(|known| known.concat())
        }
        _ => None,
    }
}

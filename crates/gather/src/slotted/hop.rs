//! A transfer to an intermediate: it fetches, and this host hears when it has.

use super::{
    blame::Suspect,
    draw::Moved,
    parcel::{Parcel, Proof},
    pool::Fault,
    scene::Scene,
};
use std::{sync::Arc, time::Duration};
use thalweg_wire::object::{Check, Failure, Reply, Request, Ticket};

/// Has `to` fetch the parcel from `from`; `then` is who shall fetch it from there. If it does not
/// come, the parcel is empty then: its data waits again, or is left where it is.
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
            // It is further now.
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
            // It may have it all the same.
            scene.drop_at(to, id);
            let empty = Parcel::new(parcel.source, Vec::new(), before.1);
            scene.leave(std::mem::replace(parcel, empty));
            Moved { bytes: 0, moving: Duration::ZERO, failed: Some(why) }
        }
    }
}

/// How long it moved, µs, and how many bytes.
async fn fetched(
    scene: &Scene,
    parcel: &mut Parcel,
    (from, to): (u32, u32),
    order: &Request,
) -> Result<(u64, u64), String> {
    let fault = match scene.ask(to, order).await {
        Ok(Reply::Fetched { parts, micros, most, ticket }) if parts.len() == parcel.parts.len() => {
            // That `to` works shows when somebody has it from there, not by its own word.
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
        Ok(_) => Fault::Gone("its answer does not fit the question".to_owned()),
        Err(fault) => fault,
    };
    let why = format!("{}: {fault}", scene.name(to));
    match fault {
        // It works as it should.
        Fault::Refused(Failure::Full(_) | Failure::Busy) => {}
        Fault::Refused(Failure::Upstream { .. }) => scene.failed(Suspect::Leg(from, to), &why),
        _ => scene.failed(Suspect::Node(to), &why),
    }
    Err(why)
}

/// The source's own word about what it sent for these tickets.
async fn proof(scene: Arc<Scene>, source: u32, tickets: Vec<Ticket>) -> Proof {
    match scene.ask(source, &Request::Sent(tickets)).await {
        Ok(Reply::Checks(checks)) => {
            let known: Option<Vec<_>> = checks.into_iter().collect();
            known.map(|known| known.concat())
        }
        _ => None,
    }
}

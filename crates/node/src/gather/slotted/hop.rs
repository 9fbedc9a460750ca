//! A transfer to an intermediate: it fetches, and this host hears when it has.

use super::{
    blame::Suspect,
    draw::Moved,
    parcel::{Parcel, Proof, grants},
    pool::Fault,
    scene::Scene,
};
use std::{sync::Arc, time::Duration};
use thalweg_wire::object::{Check, Failure, Reply, Request, Ticket};

/// Tickets of a source for parcels, each for the node that is to fetch it; those that it does
/// not give are left without, and their pieces wait again.
pub async fn prepare(scene: &Scene, source: u32, parcels: Vec<(u32, Parcel)>) -> Vec<Parcel> {
    let mut prepared = Vec::with_capacity(parcels.len());
    for (to, mut parcel) in parcels {
        match tickets(scene, source, to, &mut parcel).await {
            Ok(tickets) => {
                parcel.tickets = tickets;
                scene.works(Suspect::Node(source));
            }
            Err(why) => {
                scene.failed(Suspect::Node(source), &why);
                scene.give_back(parcel.parts.drain(..));
            }
        }
        prepared.push(parcel);
    }
    prepared
}

/// All tickets for a parcel; what the source does not lend for good is given up.
async fn tickets(
    scene: &Scene,
    source: u32,
    to: u32,
    parcel: &mut Parcel,
) -> Result<Vec<Ticket>, String> {
    'anew: loop {
        let grants = grants(&scene.errand.inventory, &parcel.parts, scene.name(to));
        let (mut tickets, mut before) = (Vec::with_capacity(grants.len()), 0);
        for grant in grants {
            let reads = grant.reads.len();
            let reply = scene.ask(source, &Request::Tickets(vec![grant])).await;
            match reply.map_err(|fault| fault.to_string())? {
                Reply::Tickets(given) => match given.into_iter().next() {
                    Some(Ok(ticket)) => tickets.push(ticket),
                    Some(Err(denied)) if matches!(denied.why, Failure::NotOffered(_)) => {
                        let index = before + denied.read as usize;
                        if index >= parcel.parts.len() {
                            return Err("its answer does not fit the question".to_owned());
                        }
                        let part = parcel.parts.remove(index);
                        scene.give_up(&part, denied.why.to_string());
                        continue 'anew;
                    }
                    Some(Err(denied)) => return Err(denied.why.to_string()),
                    None => return Err("its answer does not fit the question".to_owned()),
                },
                _ => return Err("another answer came than was asked for".to_owned()),
            }
            before += reads;
        }
        return Ok(tickets);
    }
}

/// Has `to` fetch the parcel from `from`; `then` is who shall fetch it from there. What does not
/// come waits again, and the parcel is empty then.
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
    };
    let fetched = fetched(scene, parcel, (from, to), &order).await;
    // Either it is further now, or nobody needs it there any more.
    if let (Some(holder), id) = before {
        scene.drop_at(holder, id);
    }
    match fetched {
        Ok((micros, bytes)) => {
            parcel.id = id;
            if before.0.is_none() {
                let (scene, tickets) = (scene.clone(), parcel.tickets.clone());
                let source = parcel.source;
                parcel.proof = Some(tokio::spawn(proof(scene, source, tickets)));
            }
            Moved { bytes, moving: Duration::from_micros(micros), failed: None }
        }
        Err(why) => {
            // It may have it all the same.
            scene.drop_at(to, id);
            scene.give_back(parcel.parts.drain(..));
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
            scene.works(Suspect::Node(to));
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

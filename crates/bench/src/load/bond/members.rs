//! The members of a mesh that exists for one measurement: their keys are known to everybody.

use thalweg_mesh::Membership;
use thalweg_net::PrivateKey;
use thalweg_units::WallTime;
use thalweg_wire::{
    Destination, Signed, Signer as _,
    mesh::{Member, Name, Role, Roster},
};

/// The mesh's own key.
fn mesh() -> PrivateKey {
    PrivateKey::from_seed(&[3; 32])
}

/// The key of the far end's daemon.
pub fn far() -> PrivateKey {
    PrivateKey::from_seed(&[1; 32])
}

/// So many near ends there are.
pub const MOST: u8 = 10;

/// The key of the command line of the near end with this number, below [`MOST`].
pub fn near(number: u8) -> PrivateKey {
    // Below 16 are those above and below.
    PrivateKey::from_seed(&[16 + number; 32])
}

/// The far end's name.
///
/// # Errors
/// None: it is one.
pub fn far_name() -> anyhow::Result<Name> {
    Ok("far".parse()?)
}

/// What the far end believes: all of them, for ever.
///
/// # Errors
/// When the roster is none.
pub fn membership(at: Destination) -> anyhow::Result<Membership> {
    let member = |name: Name, node: Option<&PrivateKey>, client: &PrivateKey, at: Vec<_>| Member {
        name,
        node: node.map(PrivateKey::id),
        client: client.id(),
        addresses: at,
        roles: [Role::Client].into(),
        tags: [].into(),
    };
    let far = member(far_name()?, Some(&far()), &PrivateKey::from_seed(&[4; 32]), vec![at]);
    let mut members = vec![far];
    for number in 0..MOST {
        members.push(member(format!("near-{number}").parse()?, None, &near(number), vec![]));
    }
    let roster = Roster {
        version: 1,
        not_before: WallTime::from_unix_nanos(0),
        expiry: WallTime::from_unix_nanos(u64::MAX),
        members,
        rules: Vec::new(),
    };
    let membership = Membership::new(mesh().id(), None);
    membership.offer(&Signed::sign(roster, &mesh()).encode())?;
    Ok(membership)
}
